-- Acquires the lock if it is free and it is the caller's turn.
-- KEYS: lock, register, tombstone, queue, leases, tombstone of the lease (or none). ARGV: value, ttl ms, proposed token,
-- largest skew us, the caller's ticket (or none), 'f' if it passes no waiter, and 'stays' if the ticket stays in the
-- queue: it is shared by many slots.
-- A grant replies with the bare register: a table costs the server a microsecond more.
local holder, tombstoned, wrong = see(KEYS[1], KEYS[3], KEYS[6])
if wrong then
  return wrong
end
if holder and not is_mine(holder) then
  return {'held', holder, call('PTTL', KEYS[1])}
end
local first = not holder and next_waiters(KEYS[4], KEYS[5])[1]
if first and first ~= ARGV[5] and (ARGV[6] == 'f' or string.find(first, '^[fr]', 49)) then
  local left = (call('ZSCORE', KEYS[5], first) or 0) - now_us()
  return {'held', first, math.max(left, 0) / 1000}
end
if tombstoned then
  return {'tombstoned'}
end
local known
known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
if holder then
  if ARGV[5] and not ARGV[7] then
    leave(KEYS[4], KEYS[5], ARGV[5])
  end
  return known
end
if known >= 9007199254740991 then
  return {'exhausted'}
end
local token = known + 1
-- The proposal is already text; only another number has to be formatted.
local text
local proposed = tonumber(ARGV[3])
if proposed > token then
  local latest = now_us() + ARGV[4]
  if proposed <= latest then
    token = proposed
    text = ARGV[3]
  elseif latest > token then
    token = latest
  end
end
text = text or string.format('%.0f', token)
wrong = take(KEYS[1], text, ARGV[2])
if wrong then
  return wrong
end
call('ZADD', KEYS[2], text, KEYS[1])
if first and not ARGV[7] then
  leave(KEYS[4], KEYS[5], ARGV[5] or '')
end
return token
