-- Takes the lock if it is free and it is the caller's turn.
-- KEYS: lock, counter, withdrawn attempt, line, leases. ARGV: value, ttl ms, proposed token, counter's ttl ms, largest
-- skew us, the caller's ticket (or none), and 'f' if it passes nobody.
-- A grant is answered with the bare counter: a table costs the server a microsecond more.
local holder, known, withdrawn, wrong = see(KEYS[1], KEYS[2], KEYS[3])
if wrong then
  return wrong
end
if holder and not is_mine(holder) then
  return {'held', holder, call('PTTL', KEYS[1])}
end
local first = not holder and next_in_line(KEYS[4], KEYS[5])[1]
if first and first ~= ARGV[6] and (ARGV[7] == 'f' or string.find(first, '^[fr]', 49)) then
  local left = (call('ZSCORE', KEYS[5], first) or 0) - now_us()
  return {'held', first, math.max(left, 0) / 1000}
end
if withdrawn then
  return {'withdrawn'}
end
local counter = 0
if known then
  if not string.find(known, '^%d+$') then
    return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
  end
  counter = tonumber(known)
end
if holder then
  if ARGV[6] then
    leave(KEYS[4], KEYS[5], ARGV[6])
  end
  return counter
end
if counter >= 9007199254740991 then
  return {'exhausted'}
end
counter = counter + 1
-- The proposal is text already; only another number has to be written out.
local text
local proposed = tonumber(ARGV[3])
if proposed > counter then
  local latest = now_us() + ARGV[5]
  if proposed <= latest then
    counter = proposed
    text = ARGV[3]
  elseif latest > counter then
    counter = latest
  end
end
text = text or string.format('%.0f', counter)
-- MGET calls a key of another type missing, as it does one that is: NX tells the two apart.
if known then
  call('SET', KEYS[2], text, 'PX', ARGV[4])
elseif not call('SET', KEYS[2], text, 'PX', ARGV[4], 'NX') then
  return another_kind(KEYS[2], 'no token counter')
end
wrong = take(KEYS[1], text, ARGV[2])
if wrong then
  return wrong
end
if first then
  leave(KEYS[4], KEYS[5], ARGV[6] or '')
end
return counter
