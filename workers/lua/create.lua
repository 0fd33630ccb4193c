-- KEYS: job. ARGV: id, idempotency digest or '', fingerprint, idempotency TTL ms, queue limit,
-- first stage, deadline ms from now, type, batch or '', then the record's fields.
-- Returns {'made', pool}, {'known', id}, {'mismatch'} or {'full', queued, ended in the last minute}.
local id, digest = ARGV[1], ARGV[2]
local now = now_ms()
local before = made_before(digest, 'job_id', ARGV[3], KEYS[1], id)
if before then
  return before
end
local queued = redis.call('ZCARD', K.index .. 'status:queued')
if queued >= tonumber(ARGV[5]) then
  local ended = 0
  for back = 1, 6 do
    ended = ended + tonumber(redis.call('GET', K.finished .. (math.floor(now / 10000) - back)) or '0')
  end
  return {'full', queued, ended}
end
keep_key(digest, 'job_id', id, ARGV[3], ARGV[4])
return {'made', put_job(id, ARGV[8], ARGV[6], ARGV[9], tonumber(ARGV[7]), {unpack(ARGV, 10)}, now)}
