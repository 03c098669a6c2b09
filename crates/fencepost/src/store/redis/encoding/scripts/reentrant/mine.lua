-- The holder is the field, and its token follows the number of its entries: 'entries:token'. The two are reported as
-- 'field:token'.
local head = ARGV[1] .. ':'
local function is_mine(holder)
  return holder == ARGV[1] or (holder and string.sub(holder, 1, #head) == head)
end
