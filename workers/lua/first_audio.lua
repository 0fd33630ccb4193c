-- ARGV: id, stage, attempt. Returns 1 when this was the first audio of the job.
local id = ARGV[1]
local key = K.job .. id
if not holds(id, ARGV[2], ARGV[3]) or redis.call('HEXISTS', key, 'first_audio_ms') == 1 then
  return 0
end
local now = now_ms()
local job = redis.call('HMGET', key, 'created_ms', 'type')
redis.call('HSET', key, 'first_audio_ms', now)
observe('ttfp', job[2], now - tonumber(job[1]))
emit(id, 'first_audio', {ttfp_ms = now - tonumber(job[1])})
owe_webhook(id, 'job.first_audio', now)
return 1
