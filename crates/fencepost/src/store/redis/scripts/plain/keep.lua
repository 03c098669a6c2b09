-- The layout of every Redlock client: the key is a string, the holder's value.
local look = whoever_holds
local function keep(key, value, ttl)
  redis.call('PEXPIRE', key, ttl)
end
local function free(key)
  redis.call('DEL', key)
end
