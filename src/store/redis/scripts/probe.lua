-- Probe: finds out which of the commands of a gateway this user is allowed to run.
--
-- KEYS
--   1  probe  a key that belongs to no lock; deleted before the script ends
-- ARGV
--   1  a channel that belongs to no lock
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

local reply = tried({
  { 'SET', probe, '', 'PX', '1000' }, { 'GET', probe }, { 'PTTL', probe },
  { 'EXISTS', probe }, { 'SCAN', '0', 'COUNT', '1' },
  { 'MGET', probe }, { 'SET', probe, '', 'GET' },
  { 'SETBIT', probe, '0', '1' }, { 'BITPOS', probe, '0' }, { 'PEXPIRE', probe, '1000', 'LT' },
  { 'GETRANGE', probe, '0', '0' },
  { 'PEXPIRE', probe, '0' }, { 'RPUSH', probe, 'm', 'm' }, { 'LPOS', probe, 'm' },
  { 'LSET', probe, '0', 'm' }, { 'LINDEX', probe, '0' }, { 'LRANGE', probe, '0', '0' },
  { 'LLEN', probe }, { 'LREM', probe, '1', 'm' }, { 'RPUSH', probe, 'm' }, { 'LPOP', probe }, { 'RPOP', probe },
  { 'DEL', probe },
  { 'HSET', probe, 'm', 'm' }, { 'HGET', probe, 'm' }, { 'HMGET', probe, 'm' }, { 'HVALS', probe }, { 'HLEN', probe },
  { 'HDEL', probe, 'm' }, { 'DEL', probe }, { 'ZADD', probe, '1', 'm' }, { 'ZCARD', probe },
  { 'ZCOUNT', probe, '1', '1' }, { 'ZRANGE', probe, '1', '1', 'BYSCORE' }, { 'ZREM', probe, 'm' }, { 'DEL', probe },
})
-- Tries a key that the call does not declare, because scripts derive the key of an attempt from the key of the lock.
reply[#reply + 1] = 'keys that are not declared'
reply[#reply + 1] = refusal({ 'EXISTS', probe .. ':of' })
return reply
