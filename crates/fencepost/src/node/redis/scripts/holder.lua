-- Who holds the lock, in whichever layout: its key is a string, or a hash whose one field is the holder.
local function whoever_holds(key)
  local holder = redis.pcall('GET', key)
  if type(holder) ~= 'table' then
    return holder
  end
  local fields = redis.call('HLEN', key)
  return fields == 1 and redis.call('HKEYS', key)[1] or 'a hash of ' .. fields .. ' fields'
end
-- What is wrong with a key that holds something else than it should.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
