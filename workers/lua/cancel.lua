-- ARGV: id, retention ms. Returns {status before, status after}, or {} for an unknown job.
local id = ARGV[1]
local job = redis.call('HMGET', K.job .. id, 'status', 'deleted')
if not job[1] or job[2] then
  return {}
end
if is_terminal(job[1]) then
  return {job[1], job[1]}
end
finish(id, 'canceled', 'client', {}, ARGV[2])
return {job[1], 'canceled'}
