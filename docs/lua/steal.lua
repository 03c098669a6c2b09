-- The value that stands for all readers belongs to no holder.
if ARGV[1] == 'fencepost:shared' then
  return {'tombstoned'}
end
-- A value of ours is stored as 'random:token:label' and identified by 'random:', which is unique to its attempt. A foreign
-- one is stored as is.
local head = string.find(ARGV[1], '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x:') and string.sub(ARGV[1], 1, 33)
local function is_mine(holder)
  return holder == ARGV[1] or (head and holder and string.sub(holder, 1, 33) == head)
end
local function with_token(token)
  return head and head .. token .. string.sub(ARGV[1], 33) or ARGV[1]
end
-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The layout of every Redlock client: the key is a string, the holder's value.
-- The holder and the tombstone, if any: that of the attempt, or of its lease. A key of another type looks missing.
local function see(lock, tombstone, of_lease)
  local seen = redis.call('MGET', lock, tombstone, of_lease or tombstone)
  return seen[1], seen[2] or seen[3]
end
-- Acquires a free lock. MGET reports a key of another type as missing: NX tells the two apart.
local function take(key, token, ttl)
  if redis.call('SET', key, with_token(token), 'PX', ttl, 'NX') then
    return
  end
  if redis.call('TYPE', key).ok == 'hash' then
    return another_kind(key, 'a hash, and so a reentrant lock, to be entered by a session')
  end
  return another_kind(key, 'no lock at all')
end
-- The victims of a steal: the holder or all readers, in the form that is_mine compares.
local function evicted(lock, holder, readers, now)
  local values = {holder}
  if holder == 'fencepost:shared' then
    values = redis.call('ZRANGEBYSCORE', readers, string.format('(%.0f', now), '+inf')
  end
  for i, value in ipairs(values) do
    local known = string.match(value, '^%x+:')
    values[i] = known and #known == 33 and known or value
  end
  return values
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
