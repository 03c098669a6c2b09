-- The victim of a steal, in the form that is_mine compares.
local function evicted(lock)
  return {redis.call('HKEYS', lock)[1] .. ':'}
end
