-- Looks whether a value was released with a tombstone, and changes nothing.
-- KEYS: tombstone.
return {redis.call('EXISTS', KEYS[1]) == 1 and 'withdrawn' or 'not held'}
