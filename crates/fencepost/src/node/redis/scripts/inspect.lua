-- Looks, and changes nothing.
-- KEYS: lock, counter, leases.
local holder = whoever_holds(KEYS[1])
local stored = redis.call('GET', KEYS[2])
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
local time = redis.call('TIME')
local waiting = redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', time[1] * 1000000 + time[2]), '+inf')
return {'seen', tonumber(stored or 0), waiting, holder, holder and redis.call('PTTL', KEYS[1])}
