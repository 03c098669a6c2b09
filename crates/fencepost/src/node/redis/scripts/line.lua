local call = redis.call
local function leave(line, leases, id)
  call('ZREM', line, id)
  call('ZREM', leases, id)
end
-- Who is next in line, after those are dropped who have been silent for too long.
local function next_in_line(line, leases, how_many)
  local next = call('ZRANGE', line, 0, how_many - 1)
  if next[1] then
    local time = call('TIME')
    local silent = call('ZRANGEBYSCORE', leases, '-inf', time[1] * 1000000 + time[2])
    if silent[1] then
      for _, id in ipairs(silent) do
        leave(line, leases, id)
      end
      next = call('ZRANGE', line, 0, how_many - 1)
    end
  end
  return next
end
-- Puts a ticket into the line for another lease, whose end is given in microseconds.
local function stand(line, leases, number, id, lease_end, lease)
  call('ZADD', line, string.format('%.0f', math.min(number, 9007199254740991)), id)
  call('ZADD', leases, string.format('%.0f', lease_end), id)
  for _, key in ipairs({line, leases}) do
    if call('PTTL', key) < lease then
      call('PEXPIRE', key, lease)
    end
  end
end
-- Tells one, unless it sees by the answer. A user who may not publish costs a poll, not the command.
local function tell(place, id, except)
  if not except[id] then
    redis.pcall('PUBLISH', 'fencepost:wake:' .. string.sub(id, 1, 32), place .. id)
  end
end
