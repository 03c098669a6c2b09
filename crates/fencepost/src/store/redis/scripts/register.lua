-- The fence register of a lock: the largest token ever raised here, zero where none was, at most the largest token there
-- is. And what is wrong with the register's key if it cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
