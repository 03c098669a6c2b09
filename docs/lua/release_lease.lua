-- Which attempt of the lease a value is for, if it is for that lease: 'random:token:~lease.attempt~owner', without the token
-- for a reader.
local function attempt_of_lease(value)
  local lease, attempt = string.match(value, '^%x+:%d*:?~(%x+)%.(%d+)[%d.]*~')
  return lease == ARGV[1] and string.byte(value, 33) == 58 and attempt
end
-- The lease holds the lock for itself and nobody waits: so it is nearly always. It comes first, because all that comes
-- behind begins by making functions, which costs a server as much as the rest.
local stored = redis.pcall('GET', KEYS[1])
local held_by = type(stored) == 'string' and attempt_of_lease(stored)
if held_by and redis.call('EXISTS', KEYS[2]) == 0 then
  if held_by ~= '0' then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
  end
  redis.call('DEL', KEYS[1])
  return {'lease released', stored}
end
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
-- Gives back whatever a lease of the lock service has, whichever attempt got it, refuses the lease from now on unless the
-- service made its id (attempt 0), and tells who is next.
-- KEYS: lock, queue, leases, tombstone of the lease, readers. ARGV: lease id, ms to refuse it for.
local holder = whoever_holds(KEYS[1])
local next = next_in_line(KEYS[2], KEYS[3])
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
  wake(before, {}, called(KEYS[2], after, next))
end
if held_by then
  -- Those of ours who are next are told before others look.
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
  return {'withdrawn'}
end
return {'not held', after, after and call('PTTL', KEYS[1])}
