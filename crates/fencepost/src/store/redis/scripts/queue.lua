-- Waits in line, or goes on waiting.
-- KEYS: lock, line, leases, counter. ARGV: lease ms, largest skew us, then for each ticket: its id, its number, and whether
-- that is 'proposed' or 'agreed'.
local seen = call('MGET', KEYS[1], KEYS[4])
-- A key of another type than a string looks missing.
local holder = seen[1] or whoever_holds(KEYS[1])
local stored = seen[2]
local next = next_in_line(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local is_empty = not before
local shown = {}
local lease = tonumber(ARGV[1])
if stored and not string.find(stored, '^%d+$') then
  return redis.error_reply('ERR the token counter ' .. KEYS[4] .. ' is not a number')
end
local behind = tonumber(stored or 0) + 1
for i = 3, #ARGV, 3 do
  local id, number = ARGV[i], tonumber(ARGV[i + 1])
  if ARGV[i + 2] == 'proposed' then
    local known = not is_empty and call('ZSCORE', KEYS[2], id)
    local last = not is_empty and not known and call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    number = known and tonumber(known)
      or math.max(math.min(number, now_us() + ARGV[2]), last and last + 1 or 0, behind)
  end
  number = math.min(number, 9007199254740991)
  stand(KEYS[2], KEYS[3], number, id, lease)
  shown[id] = number
  is_empty = false
end
if before then
  wake(before, shown, called(KEYS[2], holder))
end
local head = call('ZRANGE', KEYS[2], 0, 0)[1]
-- Those who read together are not in each other's way.
local in_front = head and reads(head) and #called(KEYS[2], false) or 0
local left = shown[head] and lease or head and math.max((call('ZSCORE', KEYS[3], head) or now_us()) - now_us(), 0) / 1000
local reply = {'line', holder, holder and call('PTTL', KEYS[1]), head or false, left or false}
for i = 3, #ARGV, 3 do
  reply[#reply + 1] = shown[ARGV[i]]
  local rank = call('ZRANK', KEYS[2], ARGV[i])
  reply[#reply + 1] = rank < in_front and 0 or rank
end
return reply
