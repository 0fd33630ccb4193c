-- The indexes name a job where its record says it is, and nowhere else. ARGV: id, then every status there is.
-- Returns 1, or 0 for a job that is gone.
local id = ARGV[1]
local job = redis.call('HMGET', K.job .. id, 'status', 'type', 'batch', 'deleted')
if not job[1] or job[4] then
  return 0
end
for i = 2, #ARGV do
  redis.call('ZREM', K.index .. 'status:' .. ARGV[i], id)
end
redis.call('ZADD', K.index .. 'all', 0, id)
redis.call('ZADD', K.index .. 'status:' .. job[1], 0, id)
redis.call('ZADD', K.index .. 'type:' .. job[2], 0, id)
if job[3] then
  redis.call('ZADD', K.index .. 'batch:' .. job[3], 0, id)
end
return 1
