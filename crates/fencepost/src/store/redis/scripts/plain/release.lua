-- The holder gives back what it has for itself, and whoever is next will write: so it is nearly always. It comes first,
-- because all that comes behind begins by making functions, which costs a server as much as the rest.
if ARGV[2] == '0' and ARGV[4] ~= 'returns' and string.byte(ARGV[1], 33) == 58 then
  local call = redis.call
  local stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'string' and string.sub(stored, 1, 33) == string.sub(ARGV[1], 1, 33) then
    local next = call('ZRANGE', KEYS[2], 0, 1)
    local is_usual = true
    if next[1] then
      local time = call('TIME')
      is_usual = string.sub(next[1], 49, 49) ~= 'r'
        and call('ZCOUNT', KEYS[3], '-inf', time[1] * 1000000 + time[2]) == 0
        and not (ARGV[4] == 'leaves' and call('ZSCORE', KEYS[2], ARGV[5]))
    end
    if is_usual then
      -- Whoever waits for one of many slots is told which.
      local slot = next[1] and string.match(KEYS[1], '}.*:semaphore:(%d+)$')
      for place, id in ipairs(next) do
        local client = string.sub(id, 1, 32)
        if client ~= ARGV[3] then
          redis.pcall('PUBLISH', 'fencepost:wake:' .. client, place .. (slot and ':' .. slot .. ':' or '') .. id)
        end
      end
      call('DEL', KEYS[1])
      return 'released'
    end
  end
end
