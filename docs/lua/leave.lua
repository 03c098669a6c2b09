-- The holder of a hash with one field, with its token if it is one of ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- Who holds the lock, in whichever layout: its key is a string, or a hash whose one field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and holder_and_token(key) or 'a hash of ' .. fields .. ' fields'
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
-- Waits no longer.
-- KEYS: lock, line, leases. ARGV: the tickets' ids.
local holder = whoever_holds(KEYS[1])
local next = next_in_line(KEYS[2], KEYS[3])
if next[1] then
  local before = called(KEYS[2], holder, next)
  for _, id in ipairs(ARGV) do
    leave(KEYS[2], KEYS[3], id)
  end
  wake(before, {}, called(KEYS[2], holder))
end
return 'left'
