-- The holder, in either layout: the key is a string, or a hash whose only field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and holder_and_token(key) or 'a hash of ' .. fields .. ' fields'
end
