-- The one way into a batch's last status. ARGV: id, from, to, retention ms, errors (JSON) or '', input file's
-- id or '', then of the output and of the errors: file id or '', object key, bytes, file name.
-- Returns 1, or 0 when it is not (any more) in that status.
local id, to, retention_ms = ARGV[1], ARGV[3], tonumber(ARGV[4])
local key = K.batch .. id
local batch = redis.call('HMGET', key, 'status', 'total', 'succeeded', 'failed')
if batch[1] ~= ARGV[2] then
  return batch[1] == to and 1 or 0
end
local now = now_ms()
redis.call('HSET', key, 'status', to, to .. '_ms', now, 'running', 0,
  'canceled', math.max(0, tonumber(batch[2]) - tonumber(batch[3]) - tonumber(batch[4])))
if ARGV[5] ~= '' then
  redis.call('HSET', key, 'errors', ARGV[5])
end
for i, kind in ipairs({'output', 'error'}) do
  local at = 3 + 4 * i
  if ARGV[at] ~= '' then
    local file = K.file .. ARGV[at]
    redis.call('HSET', file, 'id', ARGV[at], 'key', ARGV[at + 1], 'bytes', ARGV[at + 2],
      'filename', ARGV[at + 3], 'purpose', 'batch_output', 'created_ms', now, 'batch', id)
    redis.call('PEXPIRE', file, retention_ms)
    redis.call('ZADD', K.files .. 'all', 0, ARGV[at])
    redis.call('ZADD', K.files .. 'batch_output', 0, ARGV[at])
    redis.call('HSET', key, kind .. '_file_id', ARGV[at])
  end
end
if ARGV[6] ~= '' then
  redis.call('PEXPIRE', K.file .. ARGV[6], retention_ms)
end
redis.call('ZREM', K.batches_going, id)
redis.call('UNLINK', key .. ':lines', key .. ':seen', key .. ':chosen', key .. ':passed')
emit(id, to, {status = to})
owe(key, id, 'batch.' .. to, '', now)
for _, name in ipairs({key, key .. ':done', key .. ':failed', key .. ':output', key .. ':error',
    K.events .. id, K.deliveries_of .. id}) do
  redis.call('PEXPIRE', name, retention_ms)
end
return 1
