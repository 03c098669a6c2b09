-- Waits in line, or goes on waiting.
-- KEYS: lock, line, leases. ARGV: lease ms, largest skew us, then for each ticket: its id, its number, and whether
-- that is 'proposed' or 'agreed'.
local holder = call('GET', KEYS[1])
next_in_line(KEYS[2], KEYS[3], 1)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local lease = tonumber(ARGV[1])
for i = 3, #ARGV, 3 do
  local id, number = ARGV[i], tonumber(ARGV[i + 1])
  local known = call('ZSCORE', KEYS[2], id)
  if ARGV[i + 2] == 'agreed' then
    number = math.max(number, tonumber(known or 0))
  elseif known then
    number = tonumber(known)
  else
    local last = call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    number = math.max(math.min(number, now + ARGV[2]), last and last + 1 or 0)
  end
  stand(KEYS[2], KEYS[3], number, id, now + lease * 1000, lease)
end
local head = call('ZRANGE', KEYS[2], 0, 0)[1]
local left = head and math.max((call('ZSCORE', KEYS[3], head) or now) - now, 0) / 1000
local reply = {'line', holder, holder and call('PTTL', KEYS[1]), head or false, left or false}
for i = 3, #ARGV, 3 do
  reply[#reply + 1] = tonumber(call('ZSCORE', KEYS[2], ARGV[i]))
  reply[#reply + 1] = call('ZRANK', KEYS[2], ARGV[i])
end
return reply
