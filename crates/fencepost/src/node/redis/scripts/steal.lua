-- Takes the lock from whoever has it.
-- KEYS: lock, counter, withdrawn attempt. ARGV: value, ttl ms, proposed token, counter's ttl ms, largest skew us.
local holder = redis.call('GET', KEYS[1])
local stored = redis.call('GET', KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
  return {'withdrawn'}
end
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
local counter = tonumber(stored or 0)
if holder == ARGV[1] then
  return {'granted', counter}
end
if counter >= 9007199254740991 then
  return {'exhausted'}
end
local time = redis.call('TIME')
local latest = time[1] * 1000000 + time[2] + ARGV[5]
counter = math.max(counter + 1, math.min(tonumber(ARGV[3]), latest))
redis.call('SET', KEYS[2], string.format('%.0f', counter), 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'granted', counter, holder}
