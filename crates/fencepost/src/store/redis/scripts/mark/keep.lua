-- What stands for all readers is nobody's value.
if ARGV[1] == 'fencepost:shared' then
  return {'not held'}
end
