-- The holder is the field, and its token follows the number of its entries: 'entries:token'. The two are reported as
-- 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
end
-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The layout of Redisson's RLock: the key is a hash, its only field is the holder, the field's value the number of
-- entries and the token.
-- The holder, the tombstone, and the error if the lock's key is of another kind.
local function see(lock, tombstone)
  local fields = redis.pcall('HLEN', lock)
  if type(fields) == 'table' then
    if redis.call('TYPE', lock).ok == 'string' then
      return nil, nil, another_kind(lock, 'a string, and so a plain lock, to be taken without a session')
    end
    return nil, nil, another_kind(lock, 'no lock at all')
  end
  if fields > 1 then
    return nil, nil, another_kind(lock, 'a hash of ' .. fields .. ' fields, and a reentrant lock has one')
  end
  return fields == 1 and holder_and_token(lock), redis.call('GET', tombstone)
end
-- Acquires a free lock.
local function take(key, token, ttl, entries)
  redis.call('HSET', key, ARGV[1], (entries or 1) .. ':' .. token)
  redis.call('PEXPIRE', key, ttl)
end
-- The victim of a steal, in the form that is_mine compares.
local function evicted(lock)
  return {redis.call('HKEYS', lock)[1] .. ':'}
end
-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
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
