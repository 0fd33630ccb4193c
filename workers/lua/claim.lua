-- Take the best ready job of a pool: the lease, the attempt's number and the record in one step.
-- KEYS: ready set. ARGV: stage, worker id, lease ms, '1' when this worker already has a suspect.
-- A suspect is a job whose worker was lost before. At most one runs in a process at a time, so a job that
-- kills its workers cannot take the same healthy job down with it twice.
-- Returns the record as a flat list, or nothing.
local stage, worker, has_suspect = ARGV[1], ARGV[2], ARGV[4] == '1'
local passed_over = 0
while true do
  local best = redis.call('ZRANGE', KEYS[1], passed_over, passed_over)
  if #best == 0 then
    return {}
  end
  local id = best[1]
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'status', 'state:' .. stage, 'type', 'failures:' .. stage)
  if not job[1] or is_terminal(job[1]) or job[2] ~= 'ready' then
    -- A record that is gone, ended or already taken leaves only its name in the queue.
    redis.call('ZREM', KEYS[1], id)
  elseif has_suspect and tonumber(job[4] or '0') > 0 then
    passed_over = passed_over + 1
  else
    redis.call('ZREM', KEYS[1], id)
    local now = now_ms()
    local attempt = redis.call('HINCRBY', key, 'attempt:' .. stage, 1)
    redis.call('HSET', key, 'state:' .. stage, 'running', 'worker:' .. stage, worker, 'stage', stage)
    redis.call('ZADD', K.leases, now + tonumber(ARGV[3]), lease_name(id, stage))
    if job[1] == 'queued' then
      set_status(id, 'queued', 'running')
      redis.call('HSET', key, 'started_ms', now)
      observe('queue_wait', job[3], now - tonumber(redis.call('HGET', key, 'created_ms')))
      emit(id, 'status', {status = 'running'})
      owe_webhook(id, 'job.started', now)
    end
    emit(id, 'stage', {stage = stage, state = 'running', attempt = attempt})
    return redis.call('HGETALL', key)
  end
end
