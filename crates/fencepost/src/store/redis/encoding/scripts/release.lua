-- Releases the lock, and wakes the next waiters.
-- KEYS: lock, queue, leases, tombstone, readers, victims of a steal. ARGV: value, ms to refuse this attempt for
-- (0: do not), what the head of the queue is told ('0' if a lease is released on every node, '1' otherwise), the client that
-- follows by itself (or none), what happens to the caller's ticket ('stays', 'leaves' or 'returns'), and for the latter two
-- the ticket: id, and number and lease ms.
local holder = look(KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
  call('SET', KEYS[4], '1', 'PX', ARGV[2])
end
local next = next_waiters(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local untold = {[ARGV[4]] = true}
if ARGV[5] == 'leaves' then
  if before and leave(KEYS[2], KEYS[3], ARGV[6]) then
    next = nil
  end
elseif ARGV[5] == 'returns' then
  untold[ARGV[6]] = true
  stand(KEYS[2], KEYS[3], tonumber(ARGV[7]), ARGV[6], tonumber(ARGV[8]))
  next = nil
end
local writes = is_mine(holder)
local mine, after = writes, holder
if writes then
  after = false
elseif holder == shared then
  local now = living(KEYS[5])
  mine = call('ZREM', KEYS[5], ARGV[1]) == 1
  after = keep_for_readers(KEYS[1], KEYS[5], now)
end
if before then
  local woken, second = called(KEYS[2], after, next)
  wake(KEYS[2], before, untold, woken, second, ARGV[3])
end
if writes then
  -- Our next waiters are woken before others look.
  free(KEYS[1])
end
if mine then
  return 'released'
end
local thief = not after and call('HGET', KEYS[6], head or ARGV[1])
if thief then
  return {'stolen', thief}
end
return {'not held', after, after and call('PTTL', KEYS[1])}
