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
-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
-- Raises the register, as the holder or a reader.
-- KEYS: lock, register, readers. ARGV: value, token.
local holder = look(KEYS[1], ARGV[1])
local writes = is_mine(holder)
local mine = writes
if holder == 'fencepost:shared' then
  local time = redis.call('TIME')
  mine = (tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1])) or 0) > time[1] * 1000000 + time[2]
end
if not mine then
  return {'not held', holder, holder and redis.call('PTTL', KEYS[1])}
end
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
if writes then
  raise_token(KEYS[1], holder, ARGV[2])
end
local token = tonumber(ARGV[2])
if token <= known then
  return {'not raised', known}
end
redis.call('ZADD', KEYS[2], ARGV[2], KEYS[1])
return {'raised', token}
