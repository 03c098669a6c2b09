-- The holder is the field, and its token follows the number of its entries: 'entries:token'. The two are reported as
-- 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
end
-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The holder, in either layout: the key is a string, or a hash whose only field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and holder_and_token(key) or 'a hash of ' .. fields .. ' fields'
end
-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The layout of Redisson's RLock: the key is a hash, its only field is the holder, the field's value the number of
-- entries. Our token follows it: only the holder reads the field's value.
local function look(key, value)
  if redis.pcall('HEXISTS', key, value) == 1 then
    return value
  end
  return whoever_holds(key)
end
-- The larger of this token and the stored one.
local function entries_and_token(key, token)
  local entries, known = string.match(redis.call('HGET', key, ARGV[1]), '^(%d+):?(%d*)')
  if known ~= '' and tonumber(known) > tonumber(token) then
    token = known
  end
  return entries, token
end
local function keep(key, holder, ttl, token, entries)
  local _, larger = entries_and_token(key, token)
  redis.call('HSET', key, ARGV[1], entries .. ':' .. larger)
  redis.call('PEXPIRE', key, ttl)
end
local function raise_token(key, holder, token)
  local entries, larger = entries_and_token(key, token)
  redis.call('HSET', key, ARGV[1], entries .. ':' .. larger)
end
-- Wakes Redisson's waiters too. A missing permission to publish costs them their timeout, not the command.
local function free(key)
  redis.call('DEL', key)
  local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. name, '0')
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
-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
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
