-- The common case: the holder releases an exclusive lock, and the next waiter is a writer. It comes first, because the
-- rest starts by defining functions, which costs a server as much again.
if ARGV[2] == '0' and ARGV[5] ~= 'returns' and string.byte(ARGV[1], 33) == 58 then
  local call, queue = redis.call, KEYS[2]
  local stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'string' and string.sub(stored, 1, 33) == string.sub(ARGV[1], 1, 33) then
    local next = call('ZRANGE', queue, 0, 1)
    local is_usual = true
    if next[1] then
      local time = call('TIME')
      is_usual = string.sub(next[1], 49, 49) ~= 'r'
        and call('ZCOUNT', KEYS[3], '-inf', time[1] * 1000000 + time[2]) == 0
        and not (ARGV[5] == 'leaves' and call('ZSCORE', queue, ARGV[6]))
    end
    if is_usual then
      -- A waiter for any slot is woken with the number of the released one.
      local slot = next[1] and string.match(KEYS[1], '}.*:semaphore:(%d+)$')
      -- The head last: a server writes first to whom it has published last.
      for place = #next, 1, -1 do
        local id = next[place]
        local client = string.sub(id, 1, 32)
        if client ~= ARGV[4] then
          local message = (place == 1 and ARGV[3] or place) .. (slot and ':' .. slot .. ':' or '') .. id
          redis.pcall('PUBLISH', 'fencepost:wake:' .. client, message)
        end
      end
      call('DEL', KEYS[1])
      return 'released'
    end
  end
end
