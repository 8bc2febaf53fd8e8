#!lua flags=allow-oom
-- Quorum confirm: makes a provisional grant a delivered lease of the attempt, for its full TTL.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  how long to remember an end, in ms
-- Reply
--   {confirmed, ARGV 1, lease ..}
--   {lost, ARGV 1}             the confirmation came too late, or the attempt has left and its kept position was
--                              granted the lock
--   {replaced, ARGV 1}       a newer request under its idempotency key keeps the lease
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Counts the TTL again from then. Never brings back a lease that has ended.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant, at the latest at the limit.
-- Cluster
--   None: a node of a quorum is in no cluster.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token, tombstone = ARGV[1], ARGV[2]

-- import time
-- import record
-- import memory
-- import recipient
-- import lease_reply
-- import settle

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'provisional')
if layout then
  return { 'layout', token, layout }
end
if held ~= token or not record or record[2] ~= token then
  return { 'lost', token }
end
-- A newer request under the same idempotency key may have been answered with the lease meanwhile, and keeps it.
if recipient_of(token) ~= token then
  return { 'replaced', token }
end
local now = instants(redis.call('TIME'))
-- The lease of a kept position belongs to the request that comes back for it: this command is a late copy of an earlier
-- confirmation.
local left = not record[3] and settle(now)
if not left then
  return { 'lost', token }
end
return tell({ 'confirmed', token }, redis.call('HMGET', info, unpack(TOLD)), 1, left, now)
