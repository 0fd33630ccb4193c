-- Write one try into a delivery's log, and say what is next.
-- ARGV: delivery id, log entry, state (delivered | due | failed), ms until the next try, TTL ms.
local key = K.delivery .. ARGV[1]
if redis.call('EXISTS', key) == 0 then
  redis.call('ZREM', K.deliveries_due, ARGV[1])
  return 0
end
local log = cjson.decode(redis.call('HGET', key, 'log') or '[]')
log[#log + 1] = cjson.decode(ARGV[2])
redis.call('HSET', key, 'state', ARGV[3], 'log', cjson.encode(log))
redis.call('HINCRBY', key, 'tries', 1)
redis.call('HINCRBY', K.counts, 'webhooks|' .. ARGV[3], 1)
if ARGV[3] == 'due' then
  redis.call('ZADD', K.deliveries_due, now_ms() + tonumber(ARGV[4]), ARGV[1])
else
  redis.call('ZREM', K.deliveries_due, ARGV[1])
  redis.call('PEXPIRE', key, ARGV[5])
end
return 1
