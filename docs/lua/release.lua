-- The holder gives back what it has for itself, and whoever is next will write: so it is nearly always. It comes first,
-- because all that comes behind begins by making functions, which costs a server as much as the rest.
if ARGV[2] == '0' and ARGV[4] ~= 'returns' and string.byte(ARGV[1], 33) == 58 then
  local call = redis.call
  local stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'string' and string.sub(stored, 1, 33) == string.sub(ARGV[1], 1, 33) then
    local next = call('ZRANGE', KEYS[2], 0, 1)
    local is_usual = true
    if next[1] then
      local time = call('TIME')
      is_usual = string.sub(next[1], 49, 49) ~= 'r'
        and call('ZCOUNT', KEYS[3], '-inf', time[1] * 1000000 + time[2]) == 0
        and not (ARGV[4] == 'leaves' and call('ZSCORE', KEYS[2], ARGV[5]))
    end
    if is_usual then
      -- Whoever waits for one of many slots is told which.
      local slot = next[1] and string.match(KEYS[1], '}.*:semaphore:(%d+)$')
      for place, id in ipairs(next) do
        local client = string.sub(id, 1, 32)
        if client ~= ARGV[3] then
          redis.pcall('PUBLISH', 'fencepost:wake:' .. client, place .. (slot and ':' .. slot .. ':' or '') .. id)
        end
      end
      call('DEL', KEYS[1])
      return 'released'
    end
  end
end
-- What stands for all readers is nobody's value.
if ARGV[1] == 'fencepost:shared' then
  return {'not held'}
end
-- A value of ours is kept as 'random:token:label' and known by 'random:', which no other attempt has. A foreign one is
-- kept as it is.
local head = string.find(ARGV[1], '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x:') and string.sub(ARGV[1], 1, 33)
local function is_mine(holder)
  return holder == ARGV[1] or (head and holder and string.sub(holder, 1, 33) == head)
end
local function with_token(token)
  return head and head .. token .. string.sub(ARGV[1], 33) or ARGV[1]
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
-- The layout of every Redlock client: the key is a string, the holder's value.
local look = whoever_holds
-- Keeps what is ours with that token at least. The token is text already.
local function keep(key, holder, ttl, token)
  if holder == with_token(token) then
    return redis.call('PEXPIRE', key, ttl)
  end
  local known = head and string.match(holder, '^%d+', 34)
  if known and tonumber(known) > tonumber(token) then
    token = known
  end
  redis.call('SET', key, with_token(token), 'PX', ttl)
end
local function raise_token(key, holder, token)
  local known = head and string.match(holder, '^%d+', 34)
  if head and not (known and tonumber(known) >= tonumber(token)) then
    redis.call('SET', key, with_token(token), 'KEEPTTL')
  end
end
local function free(key)
  redis.call('DEL', key)
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
-- Puts a ticket into the line for another lease, which is given in milliseconds.
local function stand(line, leases, number, id, lease)
  call('ZADD', line, string.format('%.0f', math.min(number, 9007199254740991)), id)
  call('ZADD', leases, string.format('%.0f', now_us() + lease * 1000), id)
  -- Both have the same time to live.
  if call('PTTL', line) < lease then
    call('PEXPIRE', line, lease)
    call('PEXPIRE', leases, lease)
  end
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
-- Gives the lock back, and tells who is next.
-- KEYS: lock, line, leases, withdrawn attempt, readers, whom a steal evicted. ARGV: value, ms to refuse this attempt for
-- (0: do not), the client that follows by itself (or none), what becomes of the caller's ticket ('stays', 'leaves' or
-- 'returns'), and for the latter two the ticket: id, and number and lease ms.
local holder = look(KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
  call('SET', KEYS[4], '1', 'PX', ARGV[2])
end
local next = next_in_line(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local untold = {[ARGV[3]] = true}
if ARGV[4] == 'leaves' then
  if before and leave(KEYS[2], KEYS[3], ARGV[5]) then
    next = nil
  end
elseif ARGV[4] == 'returns' then
  untold[ARGV[5]] = true
  stand(KEYS[2], KEYS[3], tonumber(ARGV[6]), ARGV[5], tonumber(ARGV[7]))
  next = nil
end
local writes = is_mine(holder)
local mine, after = writes, holder
if writes then
  after = false
elseif holder == shared then
  local now = living(KEYS[5])
  mine = call('ZREM', KEYS[5], ARGV[1]) == 1
  after = keep_for_readers(KEYS[1], KEYS[5], now)
end
if before then
  wake(before, untold, called(KEYS[2], after, next))
end
if writes then
  -- Those of ours who are next are told before others look.
  free(KEYS[1])
end
if mine then
  return 'released'
end
local thief = not after and call('HGET', KEYS[6], head or ARGV[1])
if thief then
  return {'stolen', thief}
end
return {'not held', after, after and call('PTTL', KEYS[1])}
