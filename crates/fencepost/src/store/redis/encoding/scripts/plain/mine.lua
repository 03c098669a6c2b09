-- A value of ours is stored as 'random:token:label' and identified by 'random:', which is unique to its attempt. A foreign
-- one is stored as is.
local head = string.find(ARGV[1], '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x:') and string.sub(ARGV[1], 1, 33)
local function is_mine(holder)
  return holder == ARGV[1] or (head and holder and string.sub(holder, 1, 33) == head)
end
local function with_token(token)
  return head and head .. token .. string.sub(ARGV[1], 33) or ARGV[1]
end
