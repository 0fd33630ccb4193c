-- Renew many leases at once. ARGV: lease ms, then id, stage, attempt of each.
-- Returns for each: 0 lost, 1 held, 2 held and somebody listens.
local lease_ms = tonumber(ARGV[1])
local now = now_ms()
local answers = {}
for i = 2, #ARGV, 3 do
  local id, stage, attempt = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if holds(id, stage, attempt) then
    redis.call('ZADD', K.leases, now + lease_ms, lease_name(id, stage))
    answers[#answers + 1] = redis.call('HGET', K.job .. id, 'listening') and 2 or 1
  else
    answers[#answers + 1] = 0
  end
end
return answers
