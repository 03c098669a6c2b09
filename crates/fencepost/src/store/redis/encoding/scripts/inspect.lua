-- Reads the state without changing it.
-- KEYS: lock, register, leases, readers.
local holder = whoever_holds(KEYS[1])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local time = redis.call('TIME')
local waiting = redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', time[1] * 1000000 + time[2]), '+inf')
local reply = {'seen', known, waiting, holder, holder and redis.call('PTTL', KEYS[1])}
if holder == 'fencepost:shared' then
  local now = time[1] * 1000000 + time[2]
  local readers = redis.call('ZRANGEBYSCORE', KEYS[4], string.format('(%.0f', now), '+inf', 'WITHSCORES')
  for i = 1, #readers, 2 do
    reply[#reply + 1] = readers[i]
    reply[#reply + 1] = (readers[i + 1] - now) / 1000
  end
end
return reply
