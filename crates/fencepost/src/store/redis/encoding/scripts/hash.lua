-- The holder of a hash with one field, with its token if it is ours.
local function holder_and_token(key)
  local held = redis.call('HGETALL', key)
  local token = string.match(held[2], ':(%d+)$')
  return token and held[1] .. ':' .. token or held[1]
end
