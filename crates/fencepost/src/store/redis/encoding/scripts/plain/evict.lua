-- The victims of a steal: the holder or all readers, in the form that is_mine compares.
local function evicted(lock, holder, readers, now)
  local values = {holder}
  if holder == 'fencepost:shared' then
    values = redis.call('ZRANGEBYSCORE', readers, string.format('(%.0f', now), '+inf')
  end
  for i, value in ipairs(values) do
    local known = string.match(value, '^%x+:')
    values[i] = known and #known == 33 and known or value
  end
  return values
end
