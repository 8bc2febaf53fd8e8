-- Probe: finds which of the commands that a gateway uses at a node of a quorum its user may run.
--
-- KEYS
--   1  probe  a key of no lock; gone when the script ends
-- ARGV
--   1  a channel of no lock
-- Reply
--   {probe, KEYS 1, seconds, microseconds, error of PUBLISH or empty, name, error, name, error ..}
-- Replay
--   Probes again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   One key.
-- Cost
--   O(1).

local probe, channel = KEYS[1], ARGV[1]

-- import permissions

return tried({
  { 'SET', probe, '', 'PX', '1000' }, { 'GET', probe }, { 'PTTL', probe }, { 'SCAN', '0', 'COUNT', '1' },
  { 'PEXPIREAT', probe, '1' },
  { 'HSET', probe, 'f', '' }, { 'HMGET', probe, 'f' }, { 'HLEN', probe }, { 'HDEL', probe, 'f' },
  { 'ZADD', probe, '1', 'm' }, { 'ZSCORE', probe, 'm' }, { 'ZRANGE', probe, '0', '0' },
  { 'ZREM', probe, 'm' }, { 'DEL', probe },
})
