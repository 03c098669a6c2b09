-- The value that stands for all readers belongs to no holder.
if ARGV[1] == 'fencepost:shared' then
  return {'tombstoned'}
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
-- Acquires the lock as a reader, if no writer holds it and none waits ahead of the caller.
-- KEYS: lock, register, tombstone, queue, leases, readers, tombstone of the lease (or none). ARGV: value, ttl ms, proposed
-- token, largest skew us, the caller's ticket (or none).
local holder = call('GET', KEYS[1])
if holder and holder ~= shared then
  return {'held', holder, call('PTTL', KEYS[1])}
end
if not holder then
  call('DEL', KEYS[6])
end
local now = living(KEYS[6])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local mine = call('ZSCORE', KEYS[6], ARGV[1])
if not mine and next_waiters(KEYS[4], KEYS[5])[1] then
  local rank = ARGV[5] and call('ZRANK', KEYS[4], ARGV[5])
  local before = rank == 0 and {} or call('ZRANGE', KEYS[4], 0, (rank or 0) - 1)
  for _, id in ipairs(before) do
    if not reads(id) then
      return {'held', id, math.max((call('ZSCORE', KEYS[5], id) or 0) - now, 0) / 1000}
    end
  end
end
if call('EXISTS', KEYS[3], KEYS[7] or KEYS[3]) > 0 then
  return {'tombstoned'}
end
if not mine then
  -- The first reader raises the register, as a writer does; those that join get the same token.
  if known == 0 or call('ZCARD', KEYS[6]) == 0 then
    if known >= 9007199254740991 then
      return {'exhausted'}
    end
    known = math.max(known + 1, math.min(tonumber(ARGV[3]), now + ARGV[4]))
    call('ZADD', KEYS[2], string.format('%.0f', known), KEYS[1])
  end
  call('ZADD', KEYS[6], string.format('%.0f', now + ARGV[2] * 1000), ARGV[1])
  keep_for_readers(KEYS[1], KEYS[6], now)
end
if ARGV[5] then
  leave(KEYS[4], KEYS[5], ARGV[5])
end
return known
