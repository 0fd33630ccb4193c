-- Shared by every script; the table K of key prefixes is put in front of it (keys.py).
--
-- The record of a job is a hash: id, spec (JSON), type, status, stage, priority, max_attempts,
-- created_ms, started_ms, first_audio_ms, finished_ms, expires_ms, usage, result, error (JSON),
-- stages ("thinker,token2wav"), pool:<stage>, state:<stage> (ready | running | parked | done),
-- attempt:<stage> (its number: the fence), failures:<stage>, worker:<stage>,
-- streamed, listening, ended_by ("<stage>|<attempt>"), webhook_events (",a,b,"), deleted.

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function emit(id, name, data)
  redis.call('XADD', K.events .. id, 'MAXLEN', '~', 20000, '*', 'n', name, 'd', cjson.encode(data))
end

local function is_terminal(status)
  return status == 'succeeded' or status == 'failed' or status == 'canceled'
end

local function lease_name(id, stage)
  return id .. '|' .. stage
end

-- A webhook's id is made of the job and the event, so one event can never go out under two ids.
local function owe_webhook(id, event, now)
  local events = redis.call('HGET', K.job .. id, 'webhook_events')
  if not events or not string.find(events, ',' .. event .. ',', 1, true) then
    return
  end
  local delivery = 'msg_' .. string.sub(id, 5) .. '_' .. string.gsub(string.sub(event, 5), '_', '')
  if redis.call('EXISTS', K.delivery .. delivery) == 1 then
    return
  end
  redis.call('HSET', K.delivery .. delivery, 'id', delivery, 'job_id', id, 'event', event,
    'created_ms', now, 'state', 'due', 'tries', 0)
  redis.call('RPUSH', K.deliveries_of .. id, delivery)
  redis.call('ZADD', K.deliveries_due, now, delivery)
end

local function set_status(id, from, to)
  redis.call('HSET', K.job .. id, 'status', to)
  redis.call('ZREM', K.index .. 'status:' .. from, id)
  redis.call('ZADD', K.index .. 'status:' .. to, 0, id)
end

local function enqueue(id, stage)
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'pool:' .. stage, 'priority', 'created_ms')
  redis.call('HSET', key, 'state:' .. stage, 'ready')
  -- Higher priority first, then age: a job that is queued again keeps its place.
  redis.call('ZADD', K.ready .. job[1], -tonumber(job[2]) * 1e13 + tonumber(job[3]), id)
  return job[1]
end

-- Whether this attempt is the one that may write: the fence of every move.
local function holds(id, stage, attempt)
  local job = redis.call('HMGET', K.job .. id, 'status', 'state:' .. stage, 'attempt:' .. stage)
  return job[1] == 'running' and job[2] == 'running' and job[3] == attempt
end

local function each_stage(id, visit)
  local stages = redis.call('HGET', K.job .. id, 'stages')
  for stage in string.gmatch(stages or '', '[^,]+') do
    visit(stage)
  end
end

local LATENCY_BUCKETS_MS = {50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000}

local function observe(name, type, ms)
  local series = name .. '|' .. type .. '|'
  for _, bound in ipairs(LATENCY_BUCKETS_MS) do
    if ms <= bound then
      redis.call('HINCRBY', K.counts, series .. bound, 1)
      break
    end
  end
  redis.call('HINCRBY', K.counts, series .. 'count', 1)
  redis.call('HINCRBY', K.counts, series .. 'sum', ms)
end

-- The one way into a terminal state; the caller has seen that the job is in none.
local function finish(id, to, ended_by, fields, retention_ms)
  local key = K.job .. id
  local now = now_ms()
  local job = redis.call('HMGET', key, 'status', 'type', 'created_ms', 'first_audio_ms')
  each_stage(id, function(stage)
    redis.call('ZREM', K.ready .. redis.call('HGET', key, 'pool:' .. stage), id)
    redis.call('ZREM', K.leases, lease_name(id, stage))
  end)
  redis.call('ZREM', K.deadlines, id)
  set_status(id, job[1], to)
  redis.call('HSET', key, 'finished_ms', now, 'expires_ms', now + retention_ms, 'ended_by', ended_by)
  if #fields > 0 then
    redis.call('HSET', key, unpack(fields))
  end
  local told = {status = to}
  local failure = redis.call('HGET', key, 'error')
  if failure then
    told.error = cjson.decode(failure)
  end
  emit(id, to, told)
  owe_webhook(id, 'job.' .. to, now)
  redis.call('HINCRBY', K.counts, 'jobs|' .. job[2] .. '|' .. to, 1)
  observe('e2e', job[2], now - tonumber(job[3]))
  local slot = K.finished .. math.floor(now / 10000)
  redis.call('INCR', slot)
  redis.call('EXPIRE', slot, 120)
  redis.call('PEXPIRE', key, retention_ms)
  redis.call('PEXPIRE', K.events .. id, retention_ms)
  redis.call('PEXPIRE', K.deliveries_of .. id, retention_ms)
end

-- Another attempt of a stage, or the end when it has had enough. `counts` says whether this one counts;
-- with `backs_off` the next attempt waits, longer each time, parked where the leases are.
local function retry_or_fail(id, stage, counts, backs_off, failure, retention_ms)
  local key = K.job .. id
  redis.call('ZREM', K.leases, lease_name(id, stage))
  local failures = redis.call('HINCRBY', key, 'failures:' .. stage, counts and 1 or 0)
  if failures >= tonumber(redis.call('HGET', key, 'max_attempts')) then
    finish(id, 'failed', stage .. '|' .. redis.call('HGET', key, 'attempt:' .. stage),
      {'error', failure}, retention_ms)
    return ''
  end
  if backs_off then
    redis.call('HSET', key, 'state:' .. stage, 'parked')
    redis.call('ZADD', K.leases, now_ms() + 2000 * 4 ^ (failures - 1), lease_name(id, stage))
    emit(id, 'stage', {stage = stage, state = 'waiting'})
    return ''
  end
  emit(id, 'stage', {stage = stage, state = 'ready'})
  return enqueue(id, stage)
end
