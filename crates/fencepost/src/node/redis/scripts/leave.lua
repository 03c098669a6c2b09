-- Waits no longer.
-- KEYS: lock, line, leases. ARGV: the tickets' ids.
local head = next_in_line(KEYS[2], KEYS[3], 1)[1]
for _, id in ipairs(ARGV) do
  leave(KEYS[2], KEYS[3], id)
end
if head and call('EXISTS', KEYS[1]) == 0 then
  local next = call('ZRANGE', KEYS[2], 0, 1)
  if next[1] ~= head then
    wake(next)
  end
end
return 'left'
