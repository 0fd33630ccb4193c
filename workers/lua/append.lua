-- Append one entry to a job's token or audio stream, fenced and once.
-- KEYS: stream, head. ARGV: attempt, seq, entry, TTL ms, most bytes to keep (0: all).
-- The head is a hash: attempt (the fence), seq (of the last entry), bytes (kept).
-- Returns 1 appended or already there, 0 fenced off, -1 a gap in the sequence.
local head = redis.call('HMGET', KEYS[2], 'attempt', 'seq', 'bytes')
if head[1] ~= ARGV[1] then
  return 0
end
local seq, last = tonumber(ARGV[2]), tonumber(head[2] or '-1')
if seq <= last then
  return 1
end
if seq ~= last + 1 then
  return -1
end
redis.call('XADD', KEYS[1], '*', 'm', ARGV[3])
local bytes = tonumber(head[3] or '0') + #ARGV[3]
local most = tonumber(ARGV[5])
while most > 0 and bytes > most do
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
  if #oldest == 0 then
    break
  end
  bytes = bytes - #oldest[1][2][2]
  redis.call('XDEL', KEYS[1], oldest[1][1])
end
redis.call('HSET', KEYS[2], 'seq', seq, 'bytes', bytes)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
