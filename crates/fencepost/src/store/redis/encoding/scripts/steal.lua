-- Steals the lock from its holder.
-- KEYS: lock, register, tombstone, victims of a steal, readers, tombstone of the lease (or none). ARGV: value, ttl ms,
-- proposed token, largest skew us, and the values that may be evicted: any holder if there are none.
local holder, tombstoned, wrong = see(KEYS[1], KEYS[3], KEYS[6])
if wrong then
  return wrong
end
if holder and ARGV[5] and not is_mine(holder) then
  local may_be_taken = false
  for i = 5, #ARGV do
    -- The prefix of our values, as stored with their token: as in is_mine.
    local known = string.match(ARGV[i], '^%x+:')
    known = known and #known == 33 and known or string.find(ARGV[i], '^%x+%-') and ARGV[i] .. ':'
    may_be_taken = may_be_taken or holder == ARGV[i] or (known and string.sub(holder, 1, #known) == known)
  end
  if not may_be_taken then
    return {'held', holder, redis.call('PTTL', KEYS[1])}
  end
end
local known
known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
if tombstoned then
  return {'tombstoned'}
end
if is_mine(holder) then
  return {'granted', known}
end
if known >= 9007199254740991 then
  return {'exhausted'}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
known = math.max(known + 1, math.min(tonumber(ARGV[3]), now + ARGV[4]))
local text = string.format('%.0f', known)
local left, victims
if holder then
  left = redis.call('PTTL', KEYS[1])
  victims = evicted(KEYS[1], holder, KEYS[5], now)
  redis.call('DEL', KEYS[1])
end
wrong = take(KEYS[1], text, ARGV[2])
if wrong then
  return wrong
end
redis.call('ZADD', KEYS[2], text, KEYS[1])
-- An evicted holder learns of the steal when it asks, even if the lock is free again by then.
if holder and left > 0 then
  redis.call('DEL', KEYS[4])
  for _, victim in ipairs(victims) do
    redis.call('HSET', KEYS[4], victim, ARGV[1])
  end
  redis.call('PEXPIRE', KEYS[4], left)
end
return {'granted', known, holder}
