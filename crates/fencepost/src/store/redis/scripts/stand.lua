-- Puts a ticket into the line for another lease, which is given in milliseconds.
local function stand(line, leases, number, id, lease)
  call('ZADD', line, string.format('%.0f', math.min(number, 9007199254740991)), id)
  call('ZADD', leases, string.format('%.0f', now_us() + lease * 1000), id)
  -- Both have the same time to live.
  if call('PTTL', line) < lease then
    call('PEXPIRE', line, lease)
    call('PEXPIRE', leases, lease)
  end
end
