-- Tell a job's listeners something on the way. Nothing is told after the end, and a late word about a job
-- that has been deleted does not bring its events back. ARGV: id, event, data (JSON). Returns 1 or 0.
local id = ARGV[1]
local status = redis.call('HGET', K.job .. id, 'status')
if status and is_terminal(status) then
  return 0
end
local told = redis.call('XADD', K.events .. id, 'NOMKSTREAM', 'MAXLEN', '~', KEPT_EVENTS, '*',
  'n', ARGV[2], 'd', ARGV[3])
return told and 1 or 0
