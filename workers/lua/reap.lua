-- Take back what dead workers hold, queue what was parked, and end what is past its deadline.
-- ARGV: most to take, lost error, deadline error, retention ms, lease ms, longest ms that a webhook waits.
-- Returns {taken back, {pools to ring}, {ids of jobs that ended}}.
local now = now_ms()
local taken, pools, ended = 0, {}, {}
-- What is to wait for longer than anything does is from before the broker's clock was set back.
local function bound(waiting, longest)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', waiting, now + longest, '+inf', 'LIMIT', 0, ARGV[1])) do
    redis.call('ZADD', waiting, now + longest, name)
  end
end
bound(K.leases, math.max(tonumber(ARGV[5]), LONGEST_PAUSE_MS))
bound(K.deliveries_due, tonumber(ARGV[6]))
for _, name in ipairs(redis.call('ZRANGEBYSCORE', K.leases, '-inf', now, 'LIMIT', 0, ARGV[1])) do
  local cut = string.find(name, '|', 1, true)
  local id, stage = string.sub(name, 1, cut - 1), string.sub(name, cut + 1)
  redis.call('ZREM', K.leases, name)
  local key = K.job .. id
  local job = redis.call('HMGET', key, 'status', 'state:' .. stage, 'attempt:' .. stage)
  if job[1] == 'running' and job[2] == 'parked' then
    pools[#pools + 1] = enqueue(id, stage)
  elseif holds(id, stage, job[3]) then
    taken = taken + 1
    local failure = cjson.decode(ARGV[2])
    failure.stage = stage
    redis.call('HINCRBY', K.counts, 'lost|' .. stage, 1)
    local pool = retry_or_fail(id, stage, true, false, cjson.encode(failure), ARGV[4])
    if pool ~= '' then
      pools[#pools + 1] = pool
    else
      ended[#ended + 1] = id
    end
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', K.deadlines, '-inf', now, 'LIMIT', 0, ARGV[1])) do
  redis.call('ZREM', K.deadlines, id)
  local status = redis.call('HGET', K.job .. id, 'status')
  if status and not is_terminal(status) then
    finish(id, 'failed', 'deadline', {'error', ARGV[3]}, ARGV[4])
    ended[#ended + 1] = id
  end
end
return {taken, pools, ended}
