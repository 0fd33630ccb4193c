-- How preparing a voice ended. ARGV: id, try (the fence), 'ready', 'failed' or 'preparing' (to try again),
-- error, ms until it is tried again, '1' when this try does not count. Returns 1, or 0 when another try has begun or the voice is gone.
local key = K.voice .. ARGV[1]
local voice = redis.call('HMGET', key, 'status', 'tries', 'pool')
if voice[1] ~= 'preparing' or voice[2] ~= ARGV[2] then
  return 0
end
if ARGV[3] == 'preparing' then
  redis.call('ZADD', K.voices_due .. voice[3], now_ms() + tonumber(ARGV[5]), ARGV[1])
  redis.call('HINCRBY', key, 'tries', -tonumber(ARGV[6]))
  return 1
end
redis.call('HSET', key, 'status', ARGV[3])
if ARGV[3] == 'failed' then
  redis.call('HSET', key, 'error', ARGV[4])
end
redis.call('ZREM', K.voices_due .. voice[3], ARGV[1])
return 1
