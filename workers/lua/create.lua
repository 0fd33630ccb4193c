-- KEYS: job. ARGV: id, idempotency digest or '', fingerprint, idempotency TTL ms, queue limit,
-- first stage, deadline ms from now, type, batch or '', then the record's fields.
-- Returns {'made', pool}, {'known', id}, {'mismatch'} or {'full', queued, ended in the last minute}.
local id, digest = ARGV[1], ARGV[2]
local now = now_ms()
if digest ~= '' then
  local known = redis.call('HMGET', K.idempotency .. digest, 'job_id', 'fingerprint')
  if known[1] then
    if known[2] ~= ARGV[3] then
      return {'mismatch'}
    end
    return {'known', known[1]}
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'known', id}
end
local queued = redis.call('ZCARD', K.index .. 'status:queued')
if queued >= tonumber(ARGV[5]) then
  local ended = 0
  for back = 1, 6 do
    ended = ended + tonumber(redis.call('GET', K.finished .. (math.floor(now / 10000) - back)) or '0')
  end
  return {'full', queued, ended}
end
if digest ~= '' then
  redis.call('HSET', K.idempotency .. digest, 'job_id', id, 'fingerprint', ARGV[3])
  redis.call('PEXPIRE', K.idempotency .. digest, ARGV[4])
end
redis.call('HSET', KEYS[1], 'id', id, 'type', ARGV[8], 'status', 'queued', 'stage', ARGV[6],
  'created_ms', now, unpack(ARGV, 10))
redis.call('ZADD', K.index .. 'all', 0, id)
redis.call('ZADD', K.index .. 'status:queued', 0, id)
redis.call('ZADD', K.index .. 'type:' .. ARGV[8], 0, id)
if ARGV[9] ~= '' then
  redis.call('ZADD', K.index .. 'batch:' .. ARGV[9], 0, id)
end
redis.call('ZADD', K.deadlines, now + tonumber(ARGV[7]), id)
emit(id, 'status', {status = 'queued'})
return {'made', enqueue(id, ARGV[6])}
