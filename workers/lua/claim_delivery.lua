-- Take the webhook delivery that has been due longest, and hold it for a while: if its sender dies,
-- it is due again by itself. ARGV: hold ms. Returns the delivery as a flat list, or nothing.
local now = now_ms()
while true do
  local due = redis.call('ZRANGEBYSCORE', K.deliveries_due, '-inf', now, 'LIMIT', 0, 1)
  if #due == 0 then
    return {}
  end
  local record = redis.call('HGETALL', K.delivery .. due[1])
  if #record > 0 then
    redis.call('ZADD', K.deliveries_due, now + tonumber(ARGV[1]), due[1])
    return record
  end
  redis.call('ZREM', K.deliveries_due, due[1])
end
