-- What stands for all readers is nobody's value.
if ARGV[1] == 'fencepost:shared' then
  return {'withdrawn'}
end
-- The fence register of a lock: the largest token ever raised here, zero where none was, at most the largest token there
-- is. And what is wrong with the register's key if it cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
local call = redis.call
-- The time in microseconds. A call costs more than what most commands do, so it is asked for once.
local now
local function now_us()
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end
local function leave(line, leases, id)
  local was_there = call('ZREM', line, id) == 1
  if was_there then
    call('ZREM', leases, id)
  end
  return was_there
end
-- The first two in line, after those are dropped who have been silent for too long.
local function next_in_line(line, leases)
  local next = call('ZRANGE', line, 0, 1)
  if next[1] then
    local silent = call('ZRANGEBYSCORE', leases, '-inf', now_us())
    if silent[1] then
      for _, id in ipairs(silent) do
        leave(line, leases, id)
      end
      next = call('ZRANGE', line, 0, 1)
    end
  end
  return next
end
-- What stands in the lock's key while many read it. Only then do the readers' ends, in microseconds, mean anything.
local shared = 'fencepost:shared'
local function reads(id)
  return string.sub(id, 49, 49) == 'r'
end
-- Who may take the lock that this one holds: the first in line, or all readers up to the first writer. And who is next.
-- The first two in line are given where they are known.
local function called(line, holder, next)
  if holder and holder ~= shared then
    return {}
  end
  next = next or call('ZRANGE', line, 0, 1)
  if not next[1] or (holder and not reads(next[1])) then
    return {}
  elseif not reads(next[1]) then
    return {next[1]}, next[2]
  end
  local readers = {}
  for _, id in ipairs(call('ZRANGE', line, 0, -1)) do
    if not reads(id) then
      return readers, id
    end
    readers[#readers + 1] = id
  end
  return readers
end
-- Tells one, unless it or its client sees by itself. A user who may not publish costs a poll, not the command.
local function tell(place, id, except)
  local client = string.sub(id, 1, 32)
  if not except[id] and not except[client] then
    -- Whoever waits for one of many slots is told which.
    local slot = string.match(KEYS[1], '}.*:semaphore:(%d+)$')
    redis.pcall('PUBLISH', 'fencepost:wake:' .. client, place .. (slot and ':' .. slot .. ':' or '') .. id)
  end
end
-- Tells those who may go and could not before, and who is next; not those who see by themselves.
local function wake(before, except, after, second)
  local told, news = {}, false
  for _, id in ipairs(before) do
    told[id] = true
  end
  for _, id in ipairs(after) do
    if not told[id] then
      news = true
      tell(1, id, except)
    end
  end
  if news and second then
    tell(2, second, except)
  end
end
-- Drops the readers whose time is up; the time.
local function living(readers)
  call('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', now_us()))
  return now
end
-- Keeps the lock's key for as long as the last reader; who has the lock then.
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
-- Takes the lock together with others who read, if nobody has it for itself and no writer waits before the caller.
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
if not mine and next_in_line(KEYS[4], KEYS[5])[1] then
  local rank = ARGV[5] and call('ZRANK', KEYS[4], ARGV[5])
  local before = rank == 0 and {} or call('ZRANGE', KEYS[4], 0, (rank or 0) - 1)
  for _, id in ipairs(before) do
    if not reads(id) then
      return {'held', id, math.max((call('ZSCORE', KEYS[5], id) or 0) - now, 0) / 1000}
    end
  end
end
if call('EXISTS', KEYS[3], KEYS[7] or KEYS[3]) > 0 then
  return {'withdrawn'}
end
if not mine then
  -- The first one raises the register, as a writer does; who joins others gets what they have.
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
