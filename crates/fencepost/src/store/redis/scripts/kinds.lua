-- What is wrong with a key that holds something else than it should.
local function another_kind(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is ' .. what .. '; take another name for one of the two')
end
