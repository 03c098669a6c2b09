-- Looks, and changes nothing.
-- KEYS: lock, counter.
local holder = redis.call('GET', KEYS[1])
local stored = redis.call('GET', KEYS[2])
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
return {'seen', tonumber(stored or 0), holder, holder and redis.call('PTTL', KEYS[1])}
