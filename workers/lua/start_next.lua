-- Queue the next stage, once, whoever asks and however often.
-- ARGV: id, stage, attempt, next stage or '', '1' when this stage is done (else it goes on beside the next),
-- '1' when the next stage is to work in a stream.
-- Returns {0} fenced off, {1} nothing to ring, or {1, pool}.
local id, stage, attempt, following = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = K.job .. id
if not holds(id, stage, attempt) then
  -- The same attempt saying "done" again (a retried call) has already had its way.
  local job = redis.call('HMGET', key, 'state:' .. stage, 'attempt:' .. stage)
  return {job[1] == 'done' and job[2] == attempt and 1 or 0}
end
if ARGV[5] == '1' then
  redis.call('HSET', key, 'state:' .. stage, 'done')
  redis.call('ZREM', K.leases, lease_name(id, stage))
  clock_out(key, stage, now_ms())
  emit(id, 'stage', {stage = stage, state = 'done'})
end
if following ~= '' and not redis.call('HGET', key, 'state:' .. following) then
  redis.call('HSET', key, 'streamed', ARGV[6])
  return {1, enqueue(id, following)}
end
return {1}
