-- The holder is the field, and its token follows the number of its entries: 'entries:token'. The two are reported as
-- 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
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
-- The layout of Redisson's RLock: the key is a hash, its only field is the holder, the field's value the number of
-- entries. Our token follows it: only the holder reads the field's value.
local function look(key, value)
  if redis.pcall('HEXISTS', key, value) == 1 then
    return value
  end
  return whoever_holds(key)
end
-- The larger of this token and the stored one.
local function entries_and_token(key, token)
  local entries, known = string.match(redis.call('HGET', key, ARGV[1]), '^(%d+):?(%d*)')
  if known ~= '' and tonumber(known) > tonumber(token) then
    token = known
  end
  return entries, token
end
local function keep(key, holder, ttl, token, entries)
  local _, larger = entries_and_token(key, token)
  redis.call('HSET', key, ARGV[1], entries .. ':' .. larger)
  redis.call('PEXPIRE', key, ttl)
end
local function raise_token(key, holder, token)
  local entries, larger = entries_and_token(key, token)
  redis.call('HSET', key, ARGV[1], entries .. ':' .. larger)
end
-- Wakes Redisson's waiters too. A missing permission to publish costs them their timeout, not the command.
local function free(key)
  redis.call('DEL', key)
  local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. name, '0')
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
-- Releases the lock, and wakes the next waiters.
-- KEYS: lock, queue, leases, tombstone, readers, victims of a steal. ARGV: value, ms to refuse this attempt for
-- (0: do not), what the head of the queue is told ('0' if a lease is released on every node, '1' otherwise), the client that
-- follows by itself (or none), what happens to the caller's ticket ('stays', 'leaves' or 'returns'), and for the latter two
-- the ticket: id, and number and lease ms.
local holder = look(KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
  call('SET', KEYS[4], '1', 'PX', ARGV[2])
end
local next = next_waiters(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local untold = {[ARGV[4]] = true}
if ARGV[5] == 'leaves' then
  if before and leave(KEYS[2], KEYS[3], ARGV[6]) then
    next = nil
  end
elseif ARGV[5] == 'returns' then
  untold[ARGV[6]] = true
  stand(KEYS[2], KEYS[3], tonumber(ARGV[7]), ARGV[6], tonumber(ARGV[8]))
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
  local woken, second = called(KEYS[2], after, next)
  wake(KEYS[2], before, untold, woken, second, ARGV[3])
end
if writes then
  -- Our next waiters are woken before others look.
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
