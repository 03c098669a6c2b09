-- The fence register of a lock: the largest token ever raised here, zero if none, at most the largest token. And the error
-- if the register's key cannot be read.
local function register(fences, lock)
  local score = redis.pcall('ZSCORE', fences, lock)
  if type(score) == 'table' then
    return nil, {err = (string.gsub(score.err, '^(%u+) ', '%1 ' .. fences .. ': '))}
  end
  return score and math.min(math.max(math.floor(tonumber(score)), 0), 9007199254740991) or 0
end
