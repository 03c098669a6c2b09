-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The holder, in either layout: the key is a string, or a hash whose only field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and holder_and_token(key) or 'a hash of ' .. fields .. ' fields'
end
-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
local call = redis.call
-- The time in microseconds. TIME costs more than most commands, so it is called once.
local now
local function now_us()
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end
local function leave(queue, leases, id)
  local was_there = call('ZREM', queue, id) == 1
  if was_there then
    call('ZREM', leases, id)
  end
  return was_there
end
-- The first two waiters, after expired tickets were dropped, and whether there were any.
local function next_waiters(queue, leases)
  local next, dropped = call('ZRANGE', queue, 0, 1), false
  if next[1] then
    local silent = call('ZRANGEBYSCORE', leases, '-inf', now_us())
    if silent[1] then
      for _, id in ipairs(silent) do
        leave(queue, leases, id)
      end
      next, dropped = call('ZRANGE', queue, 0, 1), true
    end
  end
  return next, dropped
end
-- Keeps the queue for another lease of its tickets, in milliseconds. Both keys have the same TTL, a little longer than needed,
-- so that it is not set each time.
local function keep_queue(queue, leases, lease)
  if call('PTTL', queue) < lease then
    call('PEXPIRE', queue, lease + math.floor(lease / 4))
    call('PEXPIRE', leases, lease + math.floor(lease / 4))
  end
end
-- Puts a ticket into the queue for another lease.
local function stand(queue, leases, number, id, lease)
  call('ZADD', queue, string.format('%.0f', math.min(number, 9007199254740991)), id)
  call('ZADD', leases, string.format('%.0f', now_us() + lease * 1000), id)
  keep_queue(queue, leases, lease)
end
-- The value of the lock's key while readers hold it. Only then are the readers' expiries, in microseconds, valid.
local shared = 'fencepost:shared'
local function reads(id)
  return string.sub(id, 49, 49) == 'r'
end
-- The waiters that may acquire the lock under this holder: the head of the queue, or all readers ahead of the first
-- writer. And the next waiter. The first two waiters are passed in where they are known.
local function called(queue, holder, next)
  if holder and holder ~= shared then
    return {}
  end
  next = next or call('ZRANGE', queue, 0, 1)
  if not next[1] or (holder and not reads(next[1])) then
    return {}
  elseif not reads(next[1]) then
    return {next[1]}, next[2]
  end
  local readers = {}
  for _, id in ipairs(call('ZRANGE', queue, 0, -1)) do
    if not reads(id) then
      return readers, id
    end
    readers[#readers + 1] = id
  end
  return readers
end
-- Wakes one waiter, unless it or its client sees by itself. A missing permission to publish costs a poll, not the command.
local function tell(queue, place, id, except)
  local client = string.sub(id, 1, 32)
  if not except[id] and not except[client] then
    -- A waiter for any slot is woken with the number of the released one.
    local slot = string.match(KEYS[1], '}.*:semaphore:(%d+)$')
    local message = place .. (slot and ':' .. slot .. ':' or '') .. id
    redis.pcall('PUBLISH', 'fencepost:wake:' .. client, message)
  end
end
-- Wakes the waiters that may now acquire the lock and could not before, and the next one; not those that see by themselves.
local function wake(queue, before, except, after, second, first)
  local told, news = {}, false
  for _, id in ipairs(before) do
    told[id] = true
  end
  for _, id in ipairs(after) do
    if not told[id] then
      news = true
      tell(queue, first or 1, id, except)
    end
  end
  if news and second then
    tell(queue, 2, second, except)
  end
end
-- Drops expired readers; returns the time.
local function living(readers)
  call('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', now_us()))
  return now
end
-- Extends the lock's key to the last reader's expiry; returns the holder.
local function keep_for_readers(lock, readers, now)
  local last = call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
  if not last then
    call('DEL', lock)
    return false
  end
  local left = string.format('%.0f', math.max(math.ceil((last - now) / 1000), 1))
  call('SET', lock, shared, 'PX', left)
  call('PEXPIRE', readers, left)
  return shared
end
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
