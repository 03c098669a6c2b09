-- The attempt of the lease that a value is for, if any: 'random:token:~lease.attempt~owner', without the token for a
-- reader.
local function attempt_of_lease(value)
  local lease, attempt = string.match(value, '^%x+:%d*:?~(%x+)%.(%d+)[%d.]*~')
  return lease == ARGV[1] and string.byte(value, 33) == 58 and attempt
end
-- The common case: the lease holds the lock exclusively and there are no waiters. It comes first, because the rest starts
-- by defining functions, which costs a server as much again.
local stored = redis.pcall('GET', KEYS[1])
local held_by = type(stored) == 'string' and attempt_of_lease(stored)
if held_by and redis.call('EXISTS', KEYS[2]) == 0 then
  if held_by ~= '0' then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
  end
  redis.call('DEL', KEYS[1])
  return {'lease released', stored}
end
