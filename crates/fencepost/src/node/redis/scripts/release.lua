-- Gives the lock back, and tells who is next.
-- KEYS: lock, line, leases, withdrawn attempt. ARGV: value, ms to refuse this attempt for (0: do not), what becomes
-- of its ticket ('stays', 'leaves' or 'returns'), and for the latter two the ticket: id, and number and lease ms.
local holder = look(KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
  call('SET', KEYS[4], '1', 'PX', ARGV[2])
end
local before = next_in_line(KEYS[2], KEYS[3], 2)
local next, back = before, {}
if ARGV[3] == 'leaves' then
  leave(KEYS[2], KEYS[3], ARGV[4])
  next = before[1] and call('ZRANGE', KEYS[2], 0, 1) or before
elseif ARGV[3] == 'returns' then
  back[ARGV[4]] = true
  local time = call('TIME')
  local lease = tonumber(ARGV[6])
  stand(KEYS[2], KEYS[3], tonumber(ARGV[5]), ARGV[4], time[1] * 1000000 + time[2] + lease * 1000, lease)
  next = call('ZRANGE', KEYS[2], 0, 1)
end
if holder == ARGV[1] then
  wake(next, back)
  free(KEYS[1])
  return 'released'
end
if not holder and before[1] and before[1] ~= next[1] then
  wake(next, back)
end
return {'not held', holder, holder and call('PTTL', KEYS[1])}
