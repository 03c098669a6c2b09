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
