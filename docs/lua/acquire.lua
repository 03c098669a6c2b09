-- The value that stands for all readers belongs to no holder.
if ARGV[1] == 'fencepost:shared' then
  return {'tombstoned'}
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
-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The layout of every Redlock client: the key is a string, the holder's value.
-- The holder and the tombstone, if any: that of the attempt, or of its lease. A key of another type looks missing.
local function see(lock, tombstone, of_lease)
  local seen = redis.call('MGET', lock, tombstone, of_lease or tombstone)
  return seen[1], seen[2] or seen[3]
end
-- Acquires a free lock. MGET reports a key of another type as missing: NX tells the two apart.
local function take(key, token, ttl)
  if redis.call('SET', key, with_token(token), 'PX', ttl, 'NX') then
    return
  end
  if redis.call('TYPE', key).ok == 'hash' then
    return another_kind(key, 'a hash, and so a reentrant lock, to be entered by a session')
  end
  return another_kind(key, 'no lock at all')
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
-- Acquires the lock if it is free and it is the caller's turn.
-- KEYS: lock, register, tombstone, queue, leases, tombstone of the lease (or none). ARGV: value, ttl ms, proposed token,
-- largest skew us, the caller's ticket (or none), 'f' if it passes no waiter, and 'stays' if the ticket stays in the
-- queue: it is shared by many slots.
-- A grant replies with the bare register: a table costs the server a microsecond more.
local holder, tombstoned, wrong = see(KEYS[1], KEYS[3], KEYS[6])
if wrong then
  return wrong
end
if holder and not is_mine(holder) then
  return {'held', holder, call('PTTL', KEYS[1])}
end
local first = not holder and next_waiters(KEYS[4], KEYS[5])[1]
if first and first ~= ARGV[5] and (ARGV[6] == 'f' or string.find(first, '^[fr]', 49)) then
  local left = (call('ZSCORE', KEYS[5], first) or 0) - now_us()
  return {'held', first, math.max(left, 0) / 1000}
end
if tombstoned then
  return {'tombstoned'}
end
local known
known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
if holder then
  if ARGV[5] and not ARGV[7] then
    leave(KEYS[4], KEYS[5], ARGV[5])
  end
  return known
end
if known >= 9007199254740991 then
  return {'exhausted'}
end
local token = known + 1
-- The proposal is already text; only another number has to be formatted.
local text
local proposed = tonumber(ARGV[3])
if proposed > token then
  local latest = now_us() + ARGV[4]
  if proposed <= latest then
    token = proposed
    text = ARGV[3]
  elseif latest > token then
    token = latest
  end
end
text = text or string.format('%.0f', token)
wrong = take(KEYS[1], text, ARGV[2])
if wrong then
  return wrong
end
call('ZADD', KEYS[2], text, KEYS[1])
if first and not ARGV[7] then
  leave(KEYS[4], KEYS[5], ARGV[5] or '')
end
return token
