-- Releases whatever a lease of the lock service holds, under any attempt, refuses the lease from now on unless the
-- service chose its id (attempt 0), and wakes the next waiters.
-- KEYS: lock, queue, leases, tombstone of the lease, readers. ARGV: lease id, ms to refuse it for.
local holder = whoever_holds(KEYS[1])
local next = next_waiters(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local released, attempts = {}, {}
local after = holder
if held_by then
  released[1] = holder
  attempts[held_by] = true
  after = false
elseif holder == shared then
  local now = living(KEYS[5])
  for _, reader in ipairs(call('ZRANGE', KEYS[5], 0, -1)) do
    local attempt = attempt_of_lease(reader)
    if attempt then
      call('ZREM', KEYS[5], reader)
      released[#released + 1] = reader
      attempts[attempt] = true
    end
  end
  after = keep_for_readers(KEYS[1], KEYS[5], now)
end
if before then
  local woken, second = called(KEYS[2], after, next)
  wake(KEYS[2], before, {}, woken, second, 0)
end
if held_by then
  -- Our next waiters are woken before others look.
  call('DEL', KEYS[1])
end
local was_released = call('EXISTS', KEYS[4]) == 1
if not attempts['0'] then
  call('SET', KEYS[4], '1', 'PX', ARGV[2])
end
if released[1] then
  return {'lease released', unpack(released)}
end
if was_released then
  return {'tombstoned'}
end
return {'not held', after, after and call('PTTL', KEYS[1])}
