-- The outcomes of the next lines are in the object store.
-- ARGV: id, lines written before, lines written now, part of the output or '', part of the errors or '', then
-- the lines that need not be remembered any more. Returns 1, or 0 when another one was there first.
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
for i = 6, #ARGV do
  redis.call('HDEL', key .. ':lines', ARGV[i])
end
return 1
