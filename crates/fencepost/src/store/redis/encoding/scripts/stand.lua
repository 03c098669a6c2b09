-- Keeps the queue for another lease of its tickets, in milliseconds. Both keys have the same TTL, a little longer than needed,
-- so that it is not set each time.
local function keep_queue(queue, leases, lease)
  if call('PTTL', queue) < lease then
    call('PEXPIRE', queue, lease + math.floor(lease / 4))
    call('PEXPIRE', leases, lease + math.floor(lease / 4))
  end
end
-- Puts a ticket into the queue for another lease.
local function stand(queue, leases, number, id, lease)
  call('ZADD', queue, string.format('%.0f', math.min(number, 9007199254740991)), id)
  call('ZADD', leases, string.format('%.0f', now_us() + lease * 1000), id)
  keep_queue(queue, leases, lease)
end
