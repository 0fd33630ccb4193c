-- Make a voice's record, and have it prepared. The same name with the same content is the same voice; if it
-- could not be prepared before, it is tried again.
-- ARGV: id, name digest, content digest, model, pool, most voices, then the record's other fields.
-- Returns {'made'}, {'known', id}, {'taken'} or {'full'}.
local id, digest, content, model, pool = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now_ms()
local known = redis.call('HGET', K.voice_names, digest)
if known then
  local voice = redis.call('HMGET', K.voice .. known, 'content', 'status')
  if voice[1] ~= content then
    return {'taken'}
  end
  if voice[2] == 'failed' then
    redis.call('HSET', K.voice .. known, 'status', 'preparing', 'tries', 0)
    redis.call('HDEL', K.voice .. known, 'error')
    redis.call('ZADD', K.voices_due .. pool, now, known)
  end
  return {'known', known}
end
if redis.call('ZCARD', K.voices .. model) >= tonumber(ARGV[6]) then
  return {'full'}
end
redis.call('HSET', K.voice_names, digest, id)
redis.call('HSET', K.voice .. id, 'id', id, 'content', content, 'model', model, 'pool', pool,
  'status', 'preparing', 'tries', 0, 'created_ms', now, unpack(ARGV, 7))
redis.call('ZADD', K.voices .. model, 0, id)
redis.call('ZADD', K.voices_due .. pool, now, id)
return {'made'}
