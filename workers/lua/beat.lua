-- A worker says that it lives. KEYS: its record. ARGV: worker id, record, ms until it counts as gone without
-- another beat, pool, '1' when it is ready for work.
local now = now_ms()
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', K.pools, now, ARGV[1])
if ARGV[5] == '1' then
  redis.call('ZADD', K.pools_ready, now, ARGV[4])
end
return 1
