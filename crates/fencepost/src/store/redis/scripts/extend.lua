-- Keeps the lock for another TTL; takes it again where it was forgotten.
-- KEYS: lock, counter, withdrawn attempt. ARGV: value, ttl ms, token, counter's ttl ms, how often the holder has
-- entered.
local holder = look(KEYS[1], ARGV[1])
if holder and not is_mine(holder) then
  return {'not held', holder, redis.call('PTTL', KEYS[1])}
end
local stored = redis.call('GET', KEYS[2])
-- A late extension with a shorter TTL takes away nothing that its holder was promised.
local ttl, counter_ttl = ARGV[2], ARGV[4]
local left = holder and redis.call('PTTL', KEYS[1]) or 0
if left > tonumber(ttl) then
  counter_ttl = counter_ttl - ttl + left
  ttl = left
end
-- What nearly every renewal finds: nothing to compare or to write anew.
if holder and stored == ARGV[3] then
  redis.call('PEXPIRE', KEYS[2], counter_ttl)
  keep(KEYS[1], holder, ttl, ARGV[3], ARGV[5])
  return 'extended'
end
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[2] .. ' is not a number')
end
local counter = tonumber(stored or 0)
local token = tonumber(ARGV[3])
if not holder and (counter > token or redis.call('EXISTS', KEYS[3]) == 1) then
  return {'not held'}
end
redis.call('SET', KEYS[2], string.format('%.0f', math.max(counter, token)), 'PX', counter_ttl)
if holder then
  keep(KEYS[1], holder, ttl, ARGV[3], ARGV[5])
  return 'extended'
end
return take(KEYS[1], ARGV[3], ARGV[2], ARGV[5]) or 'repaired'
