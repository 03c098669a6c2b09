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
