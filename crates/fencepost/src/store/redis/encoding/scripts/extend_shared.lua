-- Extends the lock as a reader; acquires it again where it was forgotten. A writer becomes a reader.
-- KEYS: lock, register, tombstone, queue, leases, readers, victims of a steal, tombstone of the
-- lease (or none). ARGV: value, ttl ms, token.
local holder = call('GET', KEYS[1])
local writes = is_mine(holder)
if holder and holder ~= shared and not writes then
  return {'not held', holder, call('PTTL', KEYS[1])}
end
if holder ~= shared then
  call('DEL', KEYS[6])
end
local now = living(KEYS[6])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local token = tonumber(ARGV[3])
local held = writes or call('ZSCORE', KEYS[6], ARGV[1])
if not held then
  local thief = call('HGET', KEYS[7], head or ARGV[1])
  if thief then
    return {'stolen', thief}
  end
  if known > token or call('EXISTS', KEYS[3], KEYS[8] or KEYS[3]) > 0 then
    return {'not held'}
  end
end
-- A late extension with a smaller TTL must not take away what its holder was promised.
local promised = writes and now + call('PTTL', KEYS[1]) * 1000 or tonumber(held or 0)
local ends = math.max(promised, now + ARGV[2] * 1000)
call('ZADD', KEYS[6], string.format('%.0f', ends), ARGV[1])
if known < token then
  call('ZADD', KEYS[2], ARGV[3], KEYS[1])
end
keep_for_readers(KEYS[1], KEYS[6], now)
if writes and next_waiters(KEYS[4], KEYS[5])[1] then
  wake(KEYS[4], {}, {}, called(KEYS[4], shared))
end
return held and 'extended' or 'repaired'
