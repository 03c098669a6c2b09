-- Removes the registers that were last raised too long ago, and returns how many.
-- KEYS: register. ARGV: retention us, the caller's clock us, the maximum to remove.
local time = redis.call('TIME')
-- The earlier of the two clocks: a clock that is ahead must not remove a register too early.
local now = math.min(time[1] * 1000000 + time[2], tonumber(ARGV[2]))
local before = string.format('(%.0f', now - ARGV[1])
local old = math.min(redis.call('ZCOUNT', KEYS[1], '-inf', before), tonumber(ARGV[3]))
if old > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, old - 1)
end
return old
