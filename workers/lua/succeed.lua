-- ARGV: id, stage, attempt, result, usage, retention ms. Returns 1, or 0 when fenced off.
local id, by = ARGV[1], ARGV[2] .. '|' .. ARGV[3]
if not holds(id, ARGV[2], ARGV[3]) then
  local job = redis.call('HMGET', K.job .. id, 'status', 'ended_by')
  return job[1] == 'succeeded' and job[2] == by and 1 or 0
end
redis.call('HSET', K.job .. id, 'state:' .. ARGV[2], 'done')
finish(id, 'succeeded', by, {'result', ARGV[4], 'usage', ARGV[5]}, ARGV[6])
return 1
