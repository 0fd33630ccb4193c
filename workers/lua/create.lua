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
return {'made', put_job(id, ARGV[8], ARGV[6], ARGV[9], tonumber(ARGV[7]), {unpack(ARGV, 10)}, now)}
