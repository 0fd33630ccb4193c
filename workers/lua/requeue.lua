-- A stage that is ready, and by some accident in no queue, goes back into its own, at its old place.
-- ARGV: id, stage. Returns the pool to ring, or '' when there was nothing to do.
local id, stage = ARGV[1], ARGV[2]
local job = redis.call('HMGET', K.job .. id, 'status', 'state:' .. stage, 'pool:' .. stage)
if not job[1] or is_terminal(job[1]) or job[2] ~= 'ready' or redis.call('ZSCORE', K.ready .. job[3], id) then
  return ''
end
return enqueue(id, stage)
