-- Leaves the queue.
-- KEYS: lock, queue, leases. ARGV: the tickets' ids.
local holder = whoever_holds(KEYS[1])
local next = next_waiters(KEYS[2], KEYS[3])
if next[1] then
  local before = called(KEYS[2], holder, next)
  for _, id in ipairs(ARGV) do
    leave(KEYS[2], KEYS[3], id)
  end
  wake(KEYS[2], before, {}, called(KEYS[2], holder))
end
return 'left'
