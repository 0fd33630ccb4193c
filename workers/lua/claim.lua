-- Take the best ready job of a pool: the lease, the attempt's number and the record in one step.
-- KEYS: ready set. ARGV: stage, worker id, lease ms, '1' when this worker already has a suspect,
-- '1' when it has no room for a batch's job (all of those stand behind the others).
-- A suspect is a job whose worker was lost before. At most one runs in a process at a time, so a job that
-- kills its workers cannot take the same healthy job down with it twice.
-- Returns the record as a flat list, or nothing.
local stage, worker, has_suspect = ARGV[1], ARGV[2], ARGV[4] == '1'
local passed_over = 0
while true do
  local best = redis.call('ZRANGE', KEYS[1], passed_over, passed_over, 'WITHSCORES')
  if #best == 0 or ARGV[5] == '1' and tonumber(best[2]) > BEHIND / 2 then
    return {}
  end
  local id = best[1]
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'status', 'state:' .. stage, 'type', 'failures:' .. stage, 'batch')
  if not job[1] or is_terminal(job[1]) or job[2] ~= 'ready' then
    -- A record that is gone, ended or already taken leaves only its name in the queue.
    redis.call('ZREM', KEYS[1], id)
  elseif has_suspect and tonumber(job[4] or '0') > 0 then
    passed_over = passed_over + 1
  else
    redis.call('ZREM', KEYS[1], id)
    local now = now_ms()
    local attempt = redis.call('HINCRBY', key, 'attempt:' .. stage, 1)
    redis.call('HSET', key, 'state:' .. stage, 'running', 'worker:' .. stage, worker, 'stage', stage,
      'since:' .. stage, now)
    redis.call('ZADD', K.leases, now + tonumber(ARGV[3]), lease_name(id, stage))
    if job[1] == 'queued' then
      set_status(id, 'queued', 'running')
      if job[5] and redis.call('EXISTS', K.batch .. job[5]) == 1 then
        redis.call('HINCRBY', K.batch .. job[5], 'running', 1)
      end
      redis.call('HSET', key, 'started_ms', now)
      observe('queue_wait', job[3], now - tonumber(redis.call('HGET', key, 'created_ms')))
      emit(id, 'status', {status = 'running'})
      owe_webhook(id, 'job.started', now)
    end
    emit(id, 'stage', {stage = stage, state = 'running', attempt = attempt})
    return redis.call('HGETALL', key)
  end
end
