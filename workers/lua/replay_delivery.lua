-- Owe a delivery anew, with a fresh schedule. ARGV: delivery id. Returns 1, or 0 when it has run out.
local key = K.delivery .. ARGV[1]
if redis.call('EXISTS', key) == 0 then
  return 0
end
redis.call('HSET', key, 'state', 'due', 'tries', 0)
redis.call('PERSIST', key)
redis.call('ZADD', K.deliveries_due, 0, ARGV[1])
return 1
