-- Which attempt of the lease a value is for, if it is for that lease: 'random:token:~lease.attempt~owner', without the token
-- for a reader.
local function attempt_of_lease(value)
  local lease, attempt = string.match(value, '^%x+:%d*:?~(%x+)%.(%d+)[%d.]*~')
  return lease == ARGV[1] and string.byte(value, 33) == 58 and attempt
end
-- The lease holds the lock for itself and nobody waits: so it is nearly always. It comes first, because all that comes
-- behind begins by making functions, which costs a server as much as the rest.
local stored = redis.pcall('GET', KEYS[1])
local held_by = type(stored) == 'string' and attempt_of_lease(stored)
if held_by and redis.call('EXISTS', KEYS[2]) == 0 then
  if held_by ~= '0' then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
  end
  redis.call('DEL', KEYS[1])
  return {'lease released', stored}
end
