-- The attempt of the lease that a value is for, if any: 'random:token:~lease.attempt~owner', without the token for a
-- reader.
local function attempt_of_lease(value)
  local lease, attempt = string.match(value, '^%x+:%d*:?~(%x+)%.(%d+)[%d.]*~')
  return lease == ARGV[1] and string.byte(value, 33) == 58 and attempt
end
-- The common case: the lease holds the lock exclusively and there are no waiters. It comes first, because the rest starts
-- by defining functions, which costs a server as much again.
local stored = redis.pcall('GET', KEYS[1])
local held_by = type(stored) == 'string' and attempt_of_lease(stored)
if held_by and redis.call('EXISTS', KEYS[2]) == 0 then
  if held_by ~= '0' then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
  end
  redis.call('DEL', KEYS[1])
  return {'lease released', stored}
end
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
