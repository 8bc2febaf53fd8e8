#!lua flags=allow-oom
-- Marker: writes something, behind which the replicas that have it are counted (WAIT).
--
-- KEYS
--   1  marker  string: written over each time
-- ARGV
--   1  for how many ms it stays
-- Reply
--   OK
-- Replay
--   Writes it again.
-- Clock
--   None.
-- Cluster
--   One key.
-- Cost
--   O(1). A server that is out of memory writes it too: what is handed on there must be counted as well.

return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
