-- Gives the lock back.
-- KEYS: lock, counter (unused), withdrawn attempt. ARGV: value, ms to refuse this attempt for (0: do not).
local holder = redis.call('GET', KEYS[1])
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[2])
end
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 'released'
end
return {'not held', holder, holder and redis.call('PTTL', KEYS[1])}
