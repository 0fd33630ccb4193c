-- The record of a batch is a hash: id, spec (JSON), status, input_bytes, created_ms and the moment of each
-- later status (<status>_ms), total (lines that ask for something), line and offset (read so far), read_all,
-- written_line (lines whose outcome is in the output), jobs (made), running, succeeded, failed, canceled,
-- faulty (failed without a job), usage:<what>, tenth (told), rate_per_s, errors (JSON), output_file_id,
-- error_file_id, webhook, webhook_events. Beside it, under the same name:
--   :lines   hash: line -> the error of a line without a job, or whose job was deleted, or ">last" for
--            lines that ask for nothing; gone once written
--   :seen    set of digests of the custom_ids so far
--   :done, :failed   bitmaps of lines, for a batch that takes up this one
--   :chosen, :passed   bitmap of the lines to take, or to pass over, of a batch that takes up another
--   :output, :error   lists of parts, "<name>:<bytes>"
-- ARGV: id, idempotency digest or '', fingerprint, idempotency TTL ms, spec, input bytes, input file's id or
-- '', batch to take up or '', which of its lines or '', webhook or '', its events.
-- Returns {'made'}, {'known', id}, {'mismatch'}, or {'missing'} or {'going'} of the batch to take up.
local id, digest, taken_up, only = ARGV[1], ARGV[2], ARGV[8], ARGV[9]
local key = K.batch .. id
local before = made_before(digest, 'batch_id', ARGV[3], key, id)
if before then
  return before
end
if taken_up ~= '' then
  local old = K.batch .. taken_up
  if redis.call('EXISTS', old) == 0 then
    return {'missing'}
  end
  if redis.call('ZSCORE', K.batches_going, taken_up) then
    return {'going'}
  end
  if only == 'failed' then
    redis.call('COPY', old .. ':failed', key .. ':chosen')
    redis.call('PERSIST', key .. ':chosen')
  elseif only == 'unfinished' then
    redis.call('BITOP', 'OR', key .. ':passed', old .. ':done', old .. ':failed')
  else
    redis.call('COPY', old .. ':done', key .. ':passed')
    redis.call('PERSIST', key .. ':passed')
  end
end
keep_key(digest, 'batch_id', id, ARGV[3], ARGV[4])
redis.call('HSET', key, 'id', id, 'spec', ARGV[5], 'status', 'validating', 'created_ms', now_ms(),
  'input_bytes', ARGV[6], 'total', 0, 'line', 0, 'offset', 0, 'written_line', 0, 'jobs', 0, 'running', 0,
  'succeeded', 0, 'failed', 0, 'canceled', 0, 'faulty', 0, 'tenth', 0)
if ARGV[10] ~= '' then
  redis.call('HSET', key, 'webhook', ARGV[10], 'webhook_events', ARGV[11])
end
redis.call('ZADD', K.batches, 0, id)
redis.call('ZADD', K.batches_going, 0, id)
if ARGV[7] ~= '' then
  redis.call('PERSIST', K.file .. ARGV[7])
end
emit(id, 'status', {status = 'validating'})
return {'made'}
