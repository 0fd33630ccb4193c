-- From one status that is not the last to the next. ARGV: id, ",from,or,from,", to, then fields to set.
-- Returns {status before, status after}, or {} for an unknown batch.
local key = K.batch .. ARGV[1]
local status = redis.call('HGET', key, 'status')
if not status then
  return {}
end
if not string.find(ARGV[2], ',' .. status .. ',', 1, true) then
  return {status, status}
end
redis.call('HSET', key, 'status', ARGV[3], ARGV[3] .. '_ms', now_ms(), unpack(ARGV, 4))
emit(ARGV[1], 'status', {status = ARGV[3]})
return {status, ARGV[3]}
