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
