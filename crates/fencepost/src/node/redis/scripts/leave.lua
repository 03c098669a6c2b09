-- Waits no longer.
-- KEYS: lock, line, leases. ARGV: the tickets' ids.
local holder = whoever_holds(KEYS[1])
local head = next_in_line(KEYS[2], KEYS[3], 1)[1]
local before = head and called(KEYS[2], holder)
for _, id in ipairs(ARGV) do
  leave(KEYS[2], KEYS[3], id)
end
if head then
  wake(before, {}, called(KEYS[2], holder))
end
return 'left'
