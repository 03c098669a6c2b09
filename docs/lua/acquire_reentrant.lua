-- The holder is the field, and its token follows the number of its entries: 'entries:token'. The two are reported as
-- 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
end
-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The layout of Redisson's RLock: the key is a hash, its only field is the holder, the field's value the number of
-- entries and the token.
-- The holder, the tombstone, and the error if the lock's key is of another kind.
local function see(lock, tombstone)
  local fields = redis.pcall('HLEN', lock)
  if type(fields) == 'table' then
    if redis.call('TYPE', lock).ok == 'string' then
      return nil, nil, another_kind(lock, 'a string, and so a plain lock, to be taken without a session')
    end
    return nil, nil, another_kind(lock, 'no lock at all')
  end
  if fields > 1 then
    return nil, nil, another_kind(lock, 'a hash of ' .. fields .. ' fields, and a reentrant lock has one')
  end
  return fields == 1 and holder_and_token(lock), redis.call('GET', tombstone)
end
-- Acquires a free lock.
local function take(key, token, ttl, entries)
  redis.call('HSET', key, ARGV[1], (entries or 1) .. ':' .. token)
  redis.call('PEXPIRE', key, ttl)
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
