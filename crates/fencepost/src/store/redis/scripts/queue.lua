-- Waits in line, or goes on waiting.
-- KEYS: lock, queue, leases, register. ARGV: lease ms, largest skew us, then for each ticket: its id, its number, and whether
-- that is 'proposed' or 'agreed'.
local holder = whoever_holds(KEYS[1])
local next = next_in_line(KEYS[2], KEYS[3])
local before = next[1] and called(KEYS[2], holder, next)
local is_empty = not before
local shown = {}
local lease = tonumber(ARGV[1])
local known, wrong = register(KEYS[4], KEYS[1])
if wrong then
  return wrong
end
local behind = known + 1
for i = 3, #ARGV, 3 do
  local id, number = ARGV[i], tonumber(ARGV[i + 1])
  if ARGV[i + 2] == 'proposed' then
    local number_known = not is_empty and call('ZSCORE', KEYS[2], id)
    local last = not is_empty and not number_known and call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    number = number_known and tonumber(number_known)
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
