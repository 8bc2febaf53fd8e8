#!lua flags=allow-oom
-- Ended: says what one node of a quorum remembers of the end of a lease.
--
-- KEYS
--   1  ended  zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token
--   2  how long an end is remembered, in ms
-- Reply
--   {released, ARGV 1, ms}  the lease was released this long ago
--   {broken, ARGV 1, 0}     the lease was broken, or has ended because a release request was overdue
--   {unknown, ARGV 1, 0}    nothing is remembered
-- Replay
--   Reads again.
-- Clock
--   TIME of this node, once.
-- Cluster
--   The key carries the name as hash tag.
-- Cost
--   O(1).

local ended, token = KEYS[1], ARGV[1]

-- import time
-- import memory

local now = instants(redis.call('TIME'))
if remembers(ended, 'b:' .. token, now) or is_overdue(ended, token, now, ARGV[2]) then
  return { 'broken', token, 0 }
elseif remembers(ended, 'r:' .. token, now) then
  local ago = now + ARGV[2] - redis.call('ZSCORE', ended, 'r:' .. token)
  return { 'released', token, math.max(0, ago) }
end
return { 'unknown', token, 0 }
