-- Take the best ready job of a pool: the lease, the attempt's number and the record in one step.
-- KEYS: ready set. ARGV: stage, worker id, lease ms. Returns the record as a flat list, or nothing.
local stage, worker = ARGV[1], ARGV[2]
while true do
  local best = redis.call('ZPOPMIN', KEYS[1])
  if #best == 0 then
    return {}
  end
  local id = best[1]
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'status', 'state:' .. stage, 'type')
  -- A record that is gone, ended or already taken leaves only its name in the queue.
  if job[1] and not is_terminal(job[1]) and job[2] == 'ready' then
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
