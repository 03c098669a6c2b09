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
