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
