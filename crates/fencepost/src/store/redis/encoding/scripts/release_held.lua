-- The holder releases its lock, and knows what is stored: so it is nearly always. Readers at the head of the queue and
-- tickets that have expired are left to the script of all releases, which the client sends when this answers 0.
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if call('EXISTS', KEYS[2]) == 1 then
  -- The holder's own ticket is still there: it was granted the lock by others.
  if ARGV[2] and call('ZSCORE', KEYS[2], ARGV[2]) then
    return 0
  end
  local next = call('ZRANGE', KEYS[2], 0, 1)
  local time = call('TIME')
  if string.sub(next[1], 49, 49) == 'r' or call('ZCOUNT', KEYS[3], '-inf', time[1] * 1000000 + time[2]) > 0 then
    return 0
  end
  -- Whoever waits for one of many slots is told which.
  local slot = string.match(KEYS[1], '}.*:semaphore:(%d+)$')
  -- The head last: a server writes first to whom it has published last.
  for place = #next, 1, -1 do
    local id = next[place]
    local client = string.sub(id, 1, 32)
    local told = place == 1 and 0 or place
    redis.pcall('PUBLISH', 'fencepost:wake:' .. client, told .. (slot and ':' .. slot .. ':' or '') .. id)
  end
end
return call('DEL', KEYS[1])
