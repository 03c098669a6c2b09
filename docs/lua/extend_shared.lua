-- The value that stands for all readers belongs to no holder.
if ARGV[1] == 'fencepost:shared' then
  return {'not held'}
end
-- A value of ours is stored as 'random:token:label' and identified by 'random:', which is unique to its attempt. A foreign
-- one is stored as is.
local head = string.find(ARGV[1], '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x:') and string.sub(ARGV[1], 1, 33)
local function is_mine(holder)
  return holder == ARGV[1] or (head and holder and string.sub(holder, 1, 33) == head)
end
local function with_token(token)
  return head and head .. token .. string.sub(ARGV[1], 33) or ARGV[1]
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
-- Extends the lock as a reader; acquires it again where it was forgotten. A writer becomes a reader.
-- KEYS: lock, register, tombstone, queue, leases, readers, victims of a steal, tombstone of the
-- lease (or none). ARGV: value, ttl ms, token.
local holder = call('GET', KEYS[1])
local writes = is_mine(holder)
if holder and holder ~= shared and not writes then
  return {'not held', holder, call('PTTL', KEYS[1])}
end
if holder ~= shared then
  call('DEL', KEYS[6])
end
local now = living(KEYS[6])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local token = tonumber(ARGV[3])
local held = writes or call('ZSCORE', KEYS[6], ARGV[1])
if not held then
  local thief = call('HGET', KEYS[7], head or ARGV[1])
  if thief then
    return {'stolen', thief}
  end
  if known > token or call('EXISTS', KEYS[3], KEYS[8] or KEYS[3]) > 0 then
    return {'not held'}
  end
end
-- A late extension with a smaller TTL must not take away what its holder was promised.
local promised = writes and now + call('PTTL', KEYS[1]) * 1000 or tonumber(held or 0)
local ends = math.max(promised, now + ARGV[2] * 1000)
call('ZADD', KEYS[6], string.format('%.0f', ends), ARGV[1])
if known < token then
  call('ZADD', KEYS[2], ARGV[3], KEYS[1])
end
keep_for_readers(KEYS[1], KEYS[6], now)
if writes and next_waiters(KEYS[4], KEYS[5])[1] then
  wake(KEYS[4], {}, {}, called(KEYS[4], shared))
end
return held and 'extended' or 'repaired'
