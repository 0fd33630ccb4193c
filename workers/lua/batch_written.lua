-- The outcomes of the next lines are in the object store.
-- ARGV: id, lines written before, lines written now, part of the output or '', part of the errors or '', then
-- as JSON the lines that need not be remembered any more, and those of the errors that had a job.
-- Returns 1, or 0 when another one was there first.
local key = K.batch .. ARGV[1]
if redis.call('HGET', key, 'written_line') ~= ARGV[2] then
  return 0
end
redis.call('HSET', key, 'written_line', ARGV[3])
if ARGV[4] ~= '' then
  redis.call('RPUSH', key .. ':output', ARGV[4])
end
if ARGV[5] ~= '' then
  redis.call('RPUSH', key .. ':error', ARGV[5])
end
for _, line in ipairs(cjson.decode(ARGV[6])) do
  redis.call('HDEL', key .. ':lines', line)
end
for _, line in ipairs(cjson.decode(ARGV[7])) do
  -- It had succeeded, and its job was gone before that was written down: it counts as what it stands among.
  if redis.call('SETBIT', key .. ':done', line, 0) == 1 then
    redis.call('HINCRBY', key, 'succeeded', -1)
    redis.call('HINCRBY', key, 'canceled', 1)
  end
end
return 1
