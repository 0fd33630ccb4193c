-- Make the jobs of the next lines of a batch, and move on past them, in one step: so each line is one job or
-- one error, whoever dies when, and however often this is called.
-- ARGV: id, lines read before, lines read now, bytes read now, '1' when that is all, the lines (JSON): each
-- one of {line, to} that ask for nothing, {line, error}, and {line, job, type, stage, deadline_ms,
-- fields, name, duplicate}; `name` is the digest of a custom_id, `duplicate` the error if it is taken.
-- Returns the pools to ring, one entry a job; or false when another one was there first.
local id = ARGV[1]
local key = K.batch .. id
local batch = redis.call('HMGET', key, 'status', 'line')
if batch[1] ~= 'in_progress' or batch[2] ~= ARGV[2] then
  return false
end
local now = now_ms()
local pools = {}

local function refuse(line, failure, settled)
  redis.call('HSET', key .. ':lines', line, failure)
  redis.call('HINCRBY', key, 'faulty', 1)
  end_line(id, line, 'failed', now)
  if settled then
    -- It can never be right: no later batch need try it.
    redis.call('SETBIT', key .. ':failed', line, 0)
    redis.call('SETBIT', key .. ':done', line, 1)
  end
end

for _, entry in ipairs(cjson.decode(ARGV[6])) do
  local line = entry.line
  if entry.to then
    redis.call('HSET', key .. ':lines', line, '>' .. entry.to)
    for passed = line, entry.to do
      redis.call('SETBIT', key .. ':done', passed, 1)
    end
  elseif entry.error then
    refuse(line, entry.error)
  elseif entry.name and redis.call('SADD', key .. ':seen', entry.name) == 0 then
    refuse(line, entry.duplicate, true)
  else
    redis.call('HINCRBY', key, 'jobs', 1)
    pools[#pools + 1] = put_job(entry.job, entry.type, entry.stage, id, entry.deadline_ms, entry.fields, now)
  end
end
redis.call('HSET', key, 'line', ARGV[3], 'offset', ARGV[4], 'read_all', ARGV[5])
return pools
