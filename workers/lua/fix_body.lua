-- What a delivery says is fixed by its first try. ARGV: delivery id, body, body for a job that was deleted.
-- Whether it was is looked at here, in the same step: a sender may have read the job before.
-- Returns the body to send.
local key = K.delivery .. ARGV[1]
local delivery = redis.call('HMGET', key, 'subject', 'body')
if not delivery[1] then
  return ARGV[3]
end
if delivery[2] then
  return delivery[2]
end
local deleted = redis.call('HEXISTS', K.job .. delivery[1], 'deleted') == 1
redis.call('HSET', key, 'body', ARGV[deleted and 3 or 2])
return ARGV[deleted and 3 or 2]
