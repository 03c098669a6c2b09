-- The head of the queue acquires a free lock: so it is nearly always when it has been woken. Whatever is otherwise is left to
-- the script of all acquires, which the client sends when this answers 0.
-- KEYS: lock, register, queue, leases. ARGV: what to store, ttl ms, token, ticket.
local call = redis.call
if call('ZRANGE', KEYS[3], 0, 0)[1] ~= ARGV[4] then
  return 0
end
local time = call('TIME')
if (call('ZSCORE', KEYS[4], ARGV[4]) or 0) - time[2] <= time[1] * 1000000
  or not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
if redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], KEYS[1]) ~= 1 then
  call('DEL', KEYS[1])
  return 0
end
call('ZREM', KEYS[3], ARGV[4])
call('ZREM', KEYS[4], ARGV[4])
return 1
