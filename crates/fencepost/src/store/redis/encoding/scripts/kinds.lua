-- The error for a key of the wrong type.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
