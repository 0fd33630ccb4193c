-- Take the writer's place in a job's stream; from now on earlier attempts are fenced off.
-- KEYS: stream, head. ARGV: attempt, TTL ms, '1' to throw away what is there.
-- Returns the last sequence number (-1: none), or -2 when a later attempt has the place.
local head = redis.call('HMGET', KEYS[2], 'attempt', 'seq')
if head[1] and tonumber(head[1]) > tonumber(ARGV[1]) then
  return -2
end
if ARGV[3] == '1' then
  redis.call('DEL', KEYS[1], KEYS[2])
  head[2] = false
end
redis.call('HSET', KEYS[2], 'attempt', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return tonumber(head[2] or '-1')
