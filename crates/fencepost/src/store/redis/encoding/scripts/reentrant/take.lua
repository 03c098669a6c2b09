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
