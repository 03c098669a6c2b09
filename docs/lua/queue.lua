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
-- Waits in line, or goes on waiting.
-- KEYS: lock, queue, leases, register. ARGV: lease ms, largest skew us, then for each ticket: its id, its number, and whether
-- that is 'proposed' or 'agreed'.
local holder = whoever_holds(KEYS[1])
local next = next_in_line(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local is_empty = not before
local shown = {}
local lease = tonumber(ARGV[1])
local known, wrong = register(KEYS[4], KEYS[1])
if wrong then
  return wrong
end
local behind = known + 1
for i = 3, #ARGV, 3 do
  local id, number = ARGV[i], tonumber(ARGV[i + 1])
  if ARGV[i + 2] == 'proposed' then
    local number_known = not is_empty and call('ZSCORE', KEYS[2], id)
    local last = not is_empty and not number_known and call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    number = number_known and tonumber(number_known)
      or math.max(math.min(number, now_us() + ARGV[2]), last and last + 1 or 0, behind)
  end
  number = math.min(number, 9007199254740991)
  stand(KEYS[2], KEYS[3], number, id, lease)
  shown[id] = number
  is_empty = false
end
if before then
  wake(before, shown, called(KEYS[2], holder))
end
local head = call('ZRANGE', KEYS[2], 0, 0)[1]
-- Those who read together are not in each other's way.
local in_front = head and reads(head) and #called(KEYS[2], false) or 0
local left = shown[head] and lease or head and math.max((call('ZSCORE', KEYS[3], head) or now_us()) - now_us(), 0) / 1000
local reply = {'line', holder, holder and call('PTTL', KEYS[1]), head or false, left or false}
for i = 3, #ARGV, 3 do
  reply[#reply + 1] = shown[ARGV[i]]
  local rank = call('ZRANK', KEYS[2], ARGV[i])
  reply[#reply + 1] = rank < in_front and 0 or rank
end
return reply
