-- The layout of Redisson's RLock: the key is a hash, its one field is the holder, the field's value how often it has
-- entered.
local function look(key, value)
  if redis.pcall('HEXISTS', key, value) == 1 then
    return value
  end
  return whoever_holds(key)
end
local function keep(key, value, ttl, entries)
  redis.call('HSET', key, value, entries)
  redis.call('PEXPIRE', key, ttl)
end
-- Those of Redisson who wait are told, too. A user who may not publish costs them their time-out, not the command.
local function free(key)
  redis.call('DEL', key)
  local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. name, '0')
end
