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
