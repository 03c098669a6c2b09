-- Who is evicted from a lock that is stolen, by what is_mine knows it by.
local function evicted(lock)
  return {redis.call('HKEYS', lock)[1] .. ':'}
end
