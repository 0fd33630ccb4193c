-- Take the voice that has waited longest to be prepared, or the one that is named, and hold it for a while:
-- if its worker dies, it is due again by itself.
-- ARGV: pool, voice id or '', hold ms, most tries, error of a voice whose workers died each time.
-- Returns the record as a flat list, or nothing.
local queue = K.voices_due .. ARGV[1]
local now = now_ms()
while true do
  local due = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, 1)
  if ARGV[2] ~= '' then
    local at = redis.call('ZSCORE', queue, ARGV[2])
    due = at and tonumber(at) <= now and {ARGV[2]} or {}
  end
  if #due == 0 then
    return {}
  end
  local key = K.voice .. due[1]
  if redis.call('HGET', key, 'status') ~= 'preparing' then
    redis.call('ZREM', queue, due[1])
  elseif redis.call('HINCRBY', key, 'tries', 1) > tonumber(ARGV[4]) then
    redis.call('HSET', key, 'status', 'failed', 'error', ARGV[5])
    redis.call('ZREM', queue, due[1])
  else
    redis.call('ZADD', queue, now + tonumber(ARGV[3]), due[1])
    return redis.call('HGETALL', key)
  end
end
