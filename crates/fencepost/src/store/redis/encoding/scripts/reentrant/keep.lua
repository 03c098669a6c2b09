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
