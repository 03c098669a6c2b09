-- The value that stands for all readers belongs to no holder.
if ARGV[1] == 'fencepost:shared' then
  return {'not held'}
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
-- The layout of every Redlock client: the key is a string, the holder's value.
local look = whoever_holds
-- Extends what is ours, with at least this token. The token is already text.
local function keep(key, holder, ttl, token)
  if holder == with_token(token) then
    return redis.call('PEXPIRE', key, ttl)
  end
  local known = head and string.match(holder, '^%d+', 34)
  if known and tonumber(known) > tonumber(token) then
    token = known
  end
  redis.call('SET', key, with_token(token), 'PX', ttl)
end
local function raise_token(key, holder, token)
  local known = head and string.match(holder, '^%d+', 34)
  if head and not (known and tonumber(known) >= tonumber(token)) then
    redis.call('SET', key, with_token(token), 'KEEPTTL')
  end
end
local function free(key)
  redis.call('DEL', key)
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
