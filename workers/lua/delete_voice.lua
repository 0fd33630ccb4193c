-- Take a voice's name away: from here on no job can be made with it. Its record stays for the jobs that were.
-- ARGV: name digest. Returns {} for a name that stands for none, else {id, jobs that still use it}.
local id = redis.call('HGET', K.voice_names, ARGV[1])
if not id then
  return {}
end
redis.call('HDEL', K.voice_names, ARGV[1])
redis.call('ZREM', K.voices .. redis.call('HGET', K.voice .. id, 'model'), id)
redis.call('SADD', K.voices_deleted, id)
return {id, redis.call('SCARD', K.voice_jobs .. id)}
