-- Keeps the lock as a reader for another TTL; takes it again where it was forgotten. A writer becomes a reader by it.
-- KEYS: lock, counter, withdrawn attempt, line, leases, readers. ARGV: value, ttl ms, token, counter's ttl ms.
local holder = call('GET', KEYS[1])
local writes = is_mine(holder)
if holder and holder ~= shared and not writes then
  return {'not held', holder, call('PTTL', KEYS[1])}
end
if holder ~= shared then
  call('DEL', KEYS[6])
end
local now = living(KEYS[6])
local stored = call('GET', KEYS[2])
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
local counter = tonumber(stored or 0)
local token = tonumber(ARGV[3])
local held = writes or call('ZSCORE', KEYS[6], ARGV[1])
if not held and (counter > token or call('EXISTS', KEYS[3]) == 1) then
  return {'not held'}
end
-- A late extension with a shorter TTL takes away nothing that its holder was promised.
local promised = writes and now + call('PTTL', KEYS[1]) * 1000 or tonumber(held or 0)
local ends = math.max(promised, now + ARGV[2] * 1000)
local counter_ttl = ARGV[4] - ARGV[2] + math.ceil((ends - now) / 1000)
call('ZADD', KEYS[6], string.format('%.0f', ends), ARGV[1])
call('SET', KEYS[2], string.format('%.0f', math.max(counter, token)), 'PX', string.format('%.0f', counter_ttl))
keep_for_readers(KEYS[1], KEYS[6], now)
if writes and next_in_line(KEYS[4], KEYS[5])[1] then
  wake({}, {}, called(KEYS[4], shared))
end
return held and 'extended' or 'repaired'
