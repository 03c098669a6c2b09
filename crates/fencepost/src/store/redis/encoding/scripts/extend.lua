-- Extends the lock; acquires it again where it was forgotten.
-- KEYS: lock, register, tombstone, victims of a steal, tombstone of the lease (or none). ARGV: value, ttl ms, token,
-- whether a forgotten lock is acquired again ('always', 'compares': not if the register is above the token, or 'never'),
-- the holder's number of entries.
local holder = look(KEYS[1], ARGV[1])
if holder and not is_mine(holder) then
  return {'not held', holder, redis.call('PTTL', KEYS[1])}
end
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
-- A late extension with a smaller TTL must not take away what its holder was promised.
local ttl = ARGV[2]
local left = holder and redis.call('PTTL', KEYS[1]) or 0
if left > tonumber(ttl) then
  ttl = left
end
local token = tonumber(ARGV[3])
if not holder then
  local thief = redis.call('HGET', KEYS[4], head or ARGV[1])
  if thief then
    return {'stolen', thief}
  end
  if ARGV[4] == 'never' or (ARGV[4] == 'compares' and known > token) or redis.call('EXISTS', KEYS[3], KEYS[5] or KEYS[3]) > 0 then
    return {'not held'}
  end
end
-- Every time, so that a name that is held for long keeps its register.
if known < token then
  redis.call('ZADD', KEYS[2], ARGV[3], KEYS[1])
end
if holder then
  keep(KEYS[1], holder, ttl, ARGV[3], ARGV[5])
  return 'extended'
end
return take(KEYS[1], ARGV[3], ARGV[2], ARGV[5]) or 'repaired'
