-- Takes the lock if it is free.
-- KEYS: lock, counter, withdrawn attempt. ARGV: value, ttl ms, proposed token, counter's ttl ms, largest skew us.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local holder = seen[1]
if holder and holder ~= ARGV[1] then
  return {'held', holder, redis.call('PTTL', KEYS[1])}
end
if seen[3] then
  return {'withdrawn'}
end
local counter = 0
if seen[2] then
  if not string.find(seen[2], '^%d+$') then
    return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
  end
  counter = tonumber(seen[2])
end
if holder then
  return {'granted', counter}
end
if counter >= 9007199254740991 then
  return {'exhausted'}
end
counter = counter + 1
local proposed = tonumber(ARGV[3])
if proposed > counter then
  local time = redis.call('TIME')
  local latest = time[1] * 1000000 + time[2] + ARGV[5]
  counter = math.max(counter, math.min(proposed, latest))
end
-- MGET calls a key of another type missing, as it does one that is: NX tells the two apart.
local text = string.format('%.0f', counter)
local kept
if seen[2] then
  kept = redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
else
  kept = redis.call('SET', KEYS[2], text, 'PX', ARGV[4], 'NX')
end
if not kept then
  return redis.error_reply('WRONGTYPE ' .. KEYS[2])
end
if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1])
end
return {'granted', counter}
