-- A worker that stops hands its job back; that is no failure of the job's.
-- ARGV: id, stage, attempt, retention ms. Returns {0} or {1, pool}.
if not holds(ARGV[1], ARGV[2], ARGV[3]) then
  return {0}
end
return {1, retry_or_fail(ARGV[1], ARGV[2], false, false, '', ARGV[4])}
