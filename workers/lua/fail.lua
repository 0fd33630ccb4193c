-- ARGV: id, stage, attempt, error, retention ms, '1' when another attempt may help.
-- Returns 0 fenced off, 1 failed for good, 2 parked for another attempt.
local id, stage, attempt = ARGV[1], ARGV[2], ARGV[3]
if not holds(id, stage, attempt) then
  local job = redis.call('HMGET', K.job .. id, 'status', 'ended_by')
  return job[1] == 'failed' and job[2] == stage .. '|' .. attempt and 1 or 0
end
if ARGV[6] == '1' then
  retry_or_fail(id, stage, true, true, ARGV[4], ARGV[5])
  return is_terminal(redis.call('HGET', K.job .. id, 'status')) and 1 or 2
end
finish(id, 'failed', stage .. '|' .. attempt, {'error', ARGV[4]}, ARGV[5])
return 1
