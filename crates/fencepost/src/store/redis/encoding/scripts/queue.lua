-- Enqueues, or renews tickets.
-- KEYS: lock, queue, leases, register. ARGV: lease ms, largest skew us, then for each ticket: its id, its number, and whether
-- that is 'proposed' or 'agreed'.
-- A look that changes nothing is what waiting costs while nothing happens: it asks for nothing twice, or in vain.
-- The queue for all slots of a semaphore is that of a name which is never held.
local for_slots = string.find(KEYS[1], '}.*:semaphore$')
local holder = not for_slots and whoever_holds(KEYS[1])
local next, dropped = next_waiters(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local is_empty = not before
local shown, changed, some_fair = {}, false, false
local lease = tonumber(ARGV[1])
local granted, wrong
-- Tickets are kept together: a client may have thousands of them, and each call costs as much as what it does.
local lease_end = string.format('%.0f', now_us() + lease * 1000)
local numbers, ends, kept = {}, {}, 0
local function stand_together()
  if kept > 0 then
    changed = call('ZADD', KEYS[2], 'CH', unpack(numbers, 1, 2 * kept)) > 0 or changed
    call('ZADD', KEYS[3], unpack(ends, 1, 2 * kept))
    kept = 0
  end
end
for i = 3, #ARGV, 3 do
  local id, number = ARGV[i], tonumber(ARGV[i + 1])
  if ARGV[i + 2] == 'proposed' then
    -- Behind all others, so these have to be there.
    stand_together()
    local number_known = not is_empty and call('ZSCORE', KEYS[2], id)
    if number_known then
      number = tonumber(number_known)
    else
      if not granted then
        granted, wrong = register(KEYS[4], KEYS[1])
        if wrong then
          return wrong
        end
      end
      local last = not is_empty and call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
      number = math.max(math.min(number, now_us() + ARGV[2]), last and last + 1 or 0, granted + 1)
    end
  end
  number = math.min(number, 9007199254740991)
  kept = kept + 1
  numbers[2 * kept - 1], numbers[2 * kept] = string.format('%.0f', number), id
  ends[2 * kept - 1], ends[2 * kept] = lease_end, id
  if kept == 500 then
    stand_together()
  end
  some_fair = some_fair or string.find(id, '^[fr]', 49)
  shown[id] = number
  is_empty = false
end
stand_together()
-- For slots, where order is no promise, the first two keep the queue for all others, who look less often. If those two are
-- gone and it ends before it is moved, the others come back with their numbers.
if not for_slots or some_fair or changed or dropped or shown[next[1]] or shown[next[2]] then
  keep_queue(KEYS[2], KEYS[3], lease)
end
if changed then
  next = call('ZRANGE', KEYS[2], 0, 1)
  if before then
    wake(KEYS[2], before, shown, called(KEYS[2], holder, next))
  end
end
local head = next[1]
-- Readers do not block each other.
local in_front = head and reads(head) and #called(KEYS[2], false) or 0
-- How long the head's ticket is kept. Where nobody is fair it keeps nobody out.
local left = head and 0
if shown[head] then
  left = lease
elseif head and (some_fair or string.find(head, '^[fr]', 49)) then
  left = math.max((call('ZSCORE', KEYS[3], head) or now_us()) - now_us(), 0) / 1000
end
local reply = {'line', holder, holder and call('PTTL', KEYS[1]), head or false, left or false}
local size = #reply
for i = 3, #ARGV, 3 do
  local id = ARGV[i]
  local rank = id == head and 0 or id == next[2] and 1 or call('ZRANK', KEYS[2], id)
  reply[size + 1], reply[size + 2] = shown[id], rank < in_front and 0 or rank
  size = size + 2
end
return reply
