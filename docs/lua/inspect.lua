-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
-- The holder, in either layout: the key is a string, or a hash whose only field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and holder_and_token(key) or 'a hash of ' .. fields .. ' fields'
end
-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
-- Reads the state without changing it.
-- KEYS: lock, register, leases, readers.
local holder = whoever_holds(KEYS[1])
local known, wrong = register(KEYS[2], KEYS[1])
if wrong then
  return wrong
end
local time = redis.call('TIME')
local waiting = redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', time[1] * 1000000 + time[2]), '+inf')
local reply = {'seen', known, waiting, holder, holder and redis.call('PTTL', KEYS[1])}
if holder == 'fencepost:shared' then
  local now = time[1] * 1000000 + time[2]
  local readers = redis.call('ZRANGEBYSCORE', KEYS[4], string.format('(%.0f', now), '+inf', 'WITHSCORES')
  for i = 1, #readers, 2 do
    reply[#reply + 1] = readers[i]
    reply[#reply + 1] = (readers[i + 1] - now) / 1000
  end
end
return reply
