-- At this shard alone. To all nodes only where nobody hears it here, or the server or the user's rights do not allow it.
local heard = redis.pcall('SPUBLISH', 'fencepost:wake:' .. queue .. ':' .. client, message)
if heard == 0 or type(heard) == 'table' then
  redis.pcall('PUBLISH', 'fencepost:wake:' .. client, message)
end
