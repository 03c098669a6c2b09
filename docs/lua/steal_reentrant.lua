-- The holder is the field, and its token stands behind the number of its entries: 'entries:token'. Both together are told
-- as 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
end
-- What is wrong with a key that holds something else than it should.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The holder of a hash with one field, with its token if it is one of ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The layout of Redisson's RLock: the key is a hash, its one field is the holder, the field's value how often it has
-- entered, and its token.
-- The holder, the tombstone, and what is wrong with the lock's key if it is of another kind.
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
-- Holds a free lock.
local function take(key, token, ttl, entries)
  redis.call('HSET', key, ARGV[1], (entries or 1) .. ':' .. token)
  redis.call('PEXPIRE', key, ttl)
end
-- Who is evicted from a lock that is stolen, by what is_mine knows it by.
local function evicted(lock)
  return {redis.call('HKEYS', lock)[1] .. ':'}
end
-- The fence register of a lock: the largest token ever raised here, zero where none was, at most the largest token there
-- is. And what is wrong with the register's key if it cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
-- Takes the lock from whoever has it.
-- KEYS: lock, register, tombstone, whom a steal evicted, readers, tombstone of the lease (or none). ARGV: value, ttl ms,
-- proposed token, largest skew us, and the values that it may be taken from: from anybody if there are none.
local holder, withdrawn, wrong = see(KEYS[1], KEYS[3], KEYS[6])
if wrong then
  return wrong
end
if holder and ARGV[5] and not is_mine(holder) then
  local may_be_taken = false
  for i = 5, #ARGV do
    -- What a value of ours begins with, as it is stored with its token: as in is_mine.
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
if withdrawn then
  return {'withdrawn'}
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
-- Whoever is evicted is told so when it asks, also when the lock is free again by then.
if holder and left > 0 then
  redis.call('DEL', KEYS[4])
  for _, victim in ipairs(victims) do
    redis.call('HSET', KEYS[4], victim, ARGV[1])
  end
  redis.call('PEXPIRE', KEYS[4], left)
end
return {'granted', known, holder}
