-- Lifts the counter, as the holder or a reader.
-- KEYS: lock, counter, readers. ARGV: value, token, the counter's ttl ms where it has none yet.
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
local stored = redis.call('GET', KEYS[2])
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
if writes then
  raise_token(KEYS[1], holder, ARGV[2])
end
local counter = tonumber(stored or 0)
local token = tonumber(ARGV[2])
if token <= counter then
  return {'not raised', counter}
end
if stored then
  redis.call('SET', KEYS[2], ARGV[2], 'KEEPTTL')
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return {'raised', token}
