-- Drop the record of a deleted voice that no job uses any more. ARGV: id. Returns 1, or 0: it is in use.
local id = ARGV[1]
if redis.call('SISMEMBER', K.voices_deleted, id) == 0 or redis.call('SCARD', K.voice_jobs .. id) > 0 then
  return 0
end
local pool = redis.call('HGET', K.voice .. id, 'pool')
if pool then
  redis.call('ZREM', K.voices_due .. pool, id)
end
redis.call('DEL', K.voice .. id, K.voice_jobs .. id)
redis.call('SREM', K.voices_deleted, id)
return 1
