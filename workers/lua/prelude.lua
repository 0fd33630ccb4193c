-- Shared by every script; the table K of key prefixes is put in front of it (keys.py).
--
-- The record of a job is a hash: id, spec (JSON), type, status, stage, priority, max_attempts,
-- created_ms, started_ms, first_audio_ms, finished_ms, expires_ms, usage, result, error (JSON),
-- stages ("thinker,token2wav"), pool:<stage>, state:<stage> (ready | running | parked | done),
-- attempt:<stage> (its number: the fence), failures:<stage>, worker:<stage>,
-- voice_name (a digest), voice_id, streamed, listening, ended_by ("<stage>|<attempt>"),
-- webhook_events (",a,b,"), deleted,
-- since:<stage> (begun), engine_ms; of a batch's job also batch, line (its number), rank.

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local KEPT_EVENTS = 20000

local function emit(id, name, data)
  redis.call('XADD', K.events .. id, 'MAXLEN', '~', KEPT_EVENTS, '*', 'n', name, 'd', cjson.encode(data))
end

local function is_terminal(status)
  return status == 'succeeded' or status == 'failed' or status == 'canceled'
end

local function lease_name(id, stage)
  return id .. '|' .. stage
end

-- A webhook's id is made of what it is about (a job, a batch) and the event, so one event can never go out
-- under two ids. `key`: the record of that; `which`: tells apart events of one name.
local function owe(key, id, event, which, now)
  local events = redis.call('HGET', key, 'webhook_events')
  if not events or not string.find(events, ',' .. event .. ',', 1, true) then
    return
  end
  local name = string.gsub(string.match(event, '%.(.*)'), '_', '') .. which
  local delivery = 'msg_' .. string.match(id, '_(.*)') .. '_' .. name
  if redis.call('EXISTS', K.delivery .. delivery) == 1 then
    return
  end
  redis.call('HSET', K.delivery .. delivery, 'id', delivery, 'subject', id, 'event', event,
    'created_ms', now, 'state', 'due', 'tries', 0)
  redis.call('RPUSH', K.deliveries_of .. id, delivery)
  redis.call('ZADD', K.deliveries_due, now, delivery)
end

local function owe_webhook(id, event, now)
  owe(K.job .. id, id, event, '', now)
end

-- What an earlier request has made under this Idempotency-Key (`digest`, '' without one), or this same request
-- whose answer was lost: {'known', id}, or {'mismatch'} when it asked for something else. `field`: what holds
-- the id; `key`: the record to be made.
local function made_before(digest, field, fingerprint, key, id)
  if digest ~= '' then
    local known = redis.call('HMGET', K.idempotency .. digest, field, 'fingerprint')
    if known[1] then
      if known[2] ~= fingerprint then
        return {'mismatch'}
      end
      return {'known', known[1]}
    end
  end
  if redis.call('EXISTS', key) == 1 then
    return {'known', id}
  end
end

local function keep_key(digest, field, id, fingerprint, ttl_ms)
  if digest ~= '' then
    redis.call('HSET', K.idempotency .. digest, field, id, 'fingerprint', fingerprint)
    redis.call('PEXPIRE', K.idempotency .. digest, ttl_ms)
  end
end

local function set_status(id, from, to)
  redis.call('HSET', K.job .. id, 'status', to)
  redis.call('ZREM', K.index .. 'status:' .. from, id)
  redis.call('ZADD', K.index .. 'status:' .. to, 0, id)
end

-- More than any priority weighs: jobs of batches stand behind all others.
local BEHIND = 1e15

local function enqueue(id, stage)
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'pool:' .. stage, 'priority', 'created_ms', 'rank')
  redis.call('HSET', key, 'state:' .. stage, 'ready')
  -- Higher priority first, then age: a job that is queued again keeps its place.
  local place = -tonumber(job[2]) * 1e13 + tonumber(job[3])
  if job[4] then
    place = place + BEHIND + tonumber(job[4])
  end
  redis.call('ZADD', K.ready .. job[1], place, id)
  return job[1]
end

-- A new job in the queue; `fields` is a flat list. Returns the pool to ring.
local function put_job(id, type, stage, batch, deadline_ms, fields, now)
  local key = K.job .. id
  redis.call('HSET', key, 'id', id, 'type', type, 'status', 'queued', 'stage', stage,
    'created_ms', now, unpack(fields))
  -- The voice is the one that has the name now, whatever becomes of the name: it stays while the job needs it.
  local voice = redis.call('HGET', K.voice_names, redis.call('HGET', key, 'voice_name') or '')
  if voice then
    redis.call('HSET', key, 'voice_id', voice)
    redis.call('SADD', K.voice_jobs .. voice, id)
  end
  redis.call('ZADD', K.index .. 'all', 0, id)
  redis.call('ZADD', K.index .. 'status:queued', 0, id)
  redis.call('ZADD', K.index .. 'type:' .. type, 0, id)
  if batch ~= '' then
    redis.call('ZADD', K.index .. 'batch:' .. batch, 0, id)
  end
  redis.call('ZADD', K.deadlines, now + deadline_ms, id)
  emit(id, 'status', {status = 'queued'})
  return enqueue(id, stage)
end

-- How many of a batch's lines have ended; listeners and the webhook are told of each tenth.
local function tell_progress(batch, now)
  local key = K.batch .. batch
  local known = redis.call('HMGET', key, 'total', 'succeeded', 'failed', 'canceled', 'tenth')
  local total = tonumber(known[1] or '0')
  if total == 0 then
    return
  end
  local ended = tonumber(known[2]) + tonumber(known[3]) + tonumber(known[4])
  local tenth = math.floor(ended * 10 / total)
  if tenth > tonumber(known[5]) and tenth < 10 then
    redis.call('HSET', key, 'tenth', tenth)
    emit(batch, 'progress', {total = total, ended = ended})
    owe(key, batch, 'batch.progress', tenth * 10, now)
  end
end

-- A line has come to its end: counted, remembered for a later batch that takes up this one, and told.
local function end_line(batch, line, how, now)
  local key = K.batch .. batch
  redis.call('HINCRBY', key, how, 1)
  if how == 'succeeded' then
    redis.call('SETBIT', key .. ':done', line, 1)
  elseif how == 'failed' then
    redis.call('SETBIT', key .. ':failed', line, 1)
  end
  tell_progress(batch, now)
end

-- What a job of a batch has used goes to the batch's totals. Times are kept in whole milliseconds.
local function add_usage(batch, usage, engine_ms)
  local key = K.batch .. batch
  for name, amount in pairs(usage) do
    if type(amount) == 'number' and amount > 0 then
      if string.sub(name, -2) == '_s' then
        redis.call('HINCRBY', key, 'usage:' .. string.sub(name, 1, -2) .. 'ms', math.floor(amount * 1000 + 0.5))
      else
        redis.call('HINCRBY', key, 'usage:' .. name, math.floor(amount))
      end
    end
  end
  redis.call('HINCRBY', key, 'usage:engine_ms', engine_ms)
end

-- The time that an attempt has held an engine's slot.
local function clock_out(key, stage, now)
  local since = redis.call('HGET', key, 'since:' .. stage)
  if since and stage ~= 'fetch' then
    redis.call('HINCRBY', key, 'engine_ms', now - tonumber(since))
    redis.call('HDEL', key, 'since:' .. stage)
  end
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
  local job = redis.call('HMGET', key, 'status', 'type', 'created_ms', 'first_audio_ms', 'batch', 'line')
  each_stage(id, function(stage)
    clock_out(key, stage, now)
    redis.call('ZREM', K.ready .. redis.call('HGET', key, 'pool:' .. stage), id)
    redis.call('ZREM', K.leases, lease_name(id, stage))
  end)
  redis.call('ZREM', K.deadlines, id)
  local voice = redis.call('HGET', key, 'voice_id')
  if voice then
    redis.call('SREM', K.voice_jobs .. voice, id)
  end
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
  if job[5] and redis.call('EXISTS', K.batch .. job[5]) == 1 then
    if job[1] == 'running' then
      redis.call('HINCRBY', K.batch .. job[5], 'running', -1)
    end
    local used = redis.call('HMGET', key, 'usage', 'engine_ms')
    add_usage(job[5], cjson.decode(used[1] or '{}'), tonumber(used[2] or '0'))
    end_line(job[5], tonumber(job[6]), to, now)
  end
  redis.call('PEXPIRE', key, retention_ms)
  redis.call('PEXPIRE', K.events .. id, retention_ms)
  redis.call('PEXPIRE', K.deliveries_of .. id, retention_ms)
end

local LONGEST_PAUSE_MS = 60000

-- Another attempt of a stage, or the end when it has had enough. `counts` says whether this one counts;
-- with `backs_off` the next attempt waits, longer each time, parked where the leases are.
local function retry_or_fail(id, stage, counts, backs_off, failure, retention_ms)
  local key = K.job .. id
  redis.call('ZREM', K.leases, lease_name(id, stage))
  clock_out(key, stage, now_ms())
  local failures = redis.call('HINCRBY', key, 'failures:' .. stage, counts and 1 or 0)
  if failures >= tonumber(redis.call('HGET', key, 'max_attempts')) then
    finish(id, 'failed', stage .. '|' .. redis.call('HGET', key, 'attempt:' .. stage),
      {'error', failure}, retention_ms)
    return ''
  end
  if backs_off then
    redis.call('HSET', key, 'state:' .. stage, 'parked')
    local pause_ms = math.min(2000 * 4 ^ (failures - 1), LONGEST_PAUSE_MS)
    redis.call('ZADD', K.leases, now_ms() + pause_ms, lease_name(id, stage))
    emit(id, 'stage', {stage = stage, state = 'waiting'})
    return ''
  end
  emit(id, 'stage', {stage = stage, state = 'ready'})
  return enqueue(id, stage)
end
