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
