-- Raises the register, as the holder or a reader.
-- KEYS: lock, register, readers. ARGV: value, token.
local holder = look(KEYS[1], ARGV[1])
local writes = is_mine(holder)
local mine = writes
if holder == 'fencepost:shared' then
  local time = redis.call('TIME')
  mine = (tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1])) or 0) > time[1] * 1000000 + time[2]
end
if not mine then
  return {'not held', holder, holder and redis.call('PTTL', KEYS[1])}
end
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
if writes then
  raise_token(KEYS[1], holder, ARGV[2])
end
local token = tonumber(ARGV[2])
if token <= known then
  return {'not raised', known}
end
redis.call('ZADD', KEYS[2], ARGV[2], KEYS[1])
return {'raised', token}
