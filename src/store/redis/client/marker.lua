#!lua flags=allow-oom
-- Marker: writes a key, so that WAIT can count the replicas that have it.
--
-- KEYS
--   1  marker  string: overwritten by each call
-- ARGV
--   1  ms until the marker expires
-- Reply
--   OK
-- Replay
--   Writes the marker again.
-- Clock
--   None.
-- Cluster
--   One key.
-- Cost
--   O(1). A server that is out of memory writes the marker too: a lease that is handed on there must be confirmed
--   by replicas as well.

return redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
