-- Forget a job: what the user gave or got goes at once; a tombstone stays for a while, so that
-- a stale worker, a late webhook or a second DELETE finds something definite.
-- ARGV: id, tombstone TTL ms, then of a batch's job its custom_id (JSON), and what to say of a line whose
-- outcome went with it (JSON). Returns 1, or 0 for an unknown job.
local FAREWELL_MS = 10000
local id = ARGV[1]
local key = K.job .. id
local job = redis.call('HMGET', key, 'status', 'deleted', 'type', 'batch', 'created_ms', 'line')
if not job[1] or job[2] then
  return 0
end
if not is_terminal(job[1]) then
  finish(id, 'canceled', 'client', {}, ARGV[2])
end
local status = redis.call('HGET', key, 'status')
local target = redis.call('HGET', key, 'webhook')
local written = job[4] and redis.call('HGET', K.batch .. job[4], 'written_line')
if written and tonumber(written) < tonumber(job[6]) then
  local failure = redis.call('HGET', key, 'error') or ARGV[4]
  redis.call('HSET', K.batch .. job[4] .. ':lines', job[6],
    '{"custom_id":' .. ARGV[3] .. ',"job_id":"' .. id .. '","error":' .. failure .. '}')
end
redis.call('DEL', key)
redis.call('HSET', key, 'id', id, 'status', status, 'type', job[3], 'created_ms', job[5], 'deleted', 1)
if target then
  redis.call('HSET', key, 'webhook', target)
end
redis.call('PEXPIRE', key, ARGV[2])
-- Whoever follows the job reads its end, and nothing else. Emptied, not removed: a new stream could begin
-- with ids before the one that they wait behind.
if redis.call('XTRIM', K.events .. id, 'MAXLEN', 0) > 0 then
  emit(id, status, {status = status})
  redis.call('PEXPIRE', K.events .. id, FAREWELL_MS)
end
redis.call('ZREM', K.index .. 'all', id)
redis.call('ZREM', K.index .. 'status:' .. status, id)
redis.call('ZREM', K.index .. 'type:' .. job[3], id)
if job[4] then
  redis.call('ZREM', K.index .. 'batch:' .. job[4], id)
end
for _, delivery in ipairs(redis.call('LRANGE', K.deliveries_of .. id, 0, -1)) do
  redis.call('HDEL', K.delivery .. delivery, 'body')
end
return 1
