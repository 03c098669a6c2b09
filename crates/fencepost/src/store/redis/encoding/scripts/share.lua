-- Acquires the lock as a reader, if no writer holds it and none waits ahead of the caller.
-- KEYS: lock, register, tombstone, queue, leases, readers, tombstone of the lease (or none). ARGV: value, ttl ms, proposed
-- token, largest skew us, the caller's ticket (or none).
local holder = call('GET', KEYS[1])
if holder and holder ~= shared then
  return {'held', holder, call('PTTL', KEYS[1])}
end
if not holder then
  call('DEL', KEYS[6])
end
local now = living(KEYS[6])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local mine = call('ZSCORE', KEYS[6], ARGV[1])
if not mine and next_waiters(KEYS[4], KEYS[5])[1] then
  local rank = ARGV[5] and call('ZRANK', KEYS[4], ARGV[5])
  local before = rank == 0 and {} or call('ZRANGE', KEYS[4], 0, (rank or 0) - 1)
  for _, id in ipairs(before) do
    if not reads(id) then
      return {'held', id, math.max((call('ZSCORE', KEYS[5], id) or 0) - now, 0) / 1000}
    end
  end
end
if call('EXISTS', KEYS[3], KEYS[7] or KEYS[3]) > 0 then
  return {'tombstoned'}
end
if not mine then
  -- The first reader raises the register, as a writer does; those that join get the same token.
  if known == 0 or call('ZCARD', KEYS[6]) == 0 then
    if known >= 9007199254740991 then
      return {'exhausted'}
    end
    known = math.max(known + 1, math.min(tonumber(ARGV[3]), now + ARGV[4]))
    call('ZADD', KEYS[2], string.format('%.0f', known), KEYS[1])
  end
  call('ZADD', KEYS[6], string.format('%.0f', now + ARGV[2] * 1000), ARGV[1])
  keep_for_readers(KEYS[1], KEYS[6], now)
end
if ARGV[5] then
  leave(KEYS[4], KEYS[5], ARGV[5])
end
return known
