-- Somebody listens. ARGV: id. Returns 1, or 0 for a job that has ended or is gone.
local key = K.job .. ARGV[1]
local status = redis.call('HGET', key, 'status')
if not status or is_terminal(status) then
  return 0
end
redis.call('HSET', key, 'listening', 1)
return 1
