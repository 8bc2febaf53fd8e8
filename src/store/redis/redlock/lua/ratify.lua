#!lua flags=allow-oom
-- Ratify: the second round of an acquire at one node of a quorum. Accepts the fence of the lease, which is the highest
-- that was proposed, if the try still has the lock here, no other lock of the slot has passed that fence, and no other
-- node has learnt from this node since its vote.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence  string: the fence counter of the slot
--   5  node   hash: what this node has learnt, and in which life
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  the nonce of the try
--   3  the fence of the lease
--   4  how long to remember an end, in ms
--   5  by how many ms the lease began before this node took part in it
--   6  the name of the vote that this node gave in the first round
--   7  the run of this server, or empty if no run of it forgets
-- Reply
--   {ratified, ARGV 2}
--   {overtaken, ARGV 2}  the counter has passed the fence: another lock of this slot was acquired
--   {outdated, ARGV 2}   the vote does not count any more: another node has learnt from this one
--   {refused, ARGV 2}    the try does not have the lock here
-- Replay
--   Ratifies again.
-- Clock
--   TIME of this node, where an idempotency key is remembered.
-- Cluster
--   Never on a cluster: key 5 has none of the slots of the other keys.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, counter, node = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, nonce, fence = ARGV[1], ARGV[2], ARGV[3]

-- import time
-- import memory
-- import vote

local record = redis.call('HMGET', info, 'lock', 'nonce', 'idem', 'provisional')
if redis.call('GET', lock) ~= token or record[1] ~= token or record[2] ~= nonce then
  return { 'refused', nonce }
end
local vote = read_vote(ARGV[7])
if not vote or vote.name ~= ARGV[6] then
  return { 'outdated', nonce }
end
if (tonumber(redis.call('GET', counter)) or 0) > tonumber(fence) then
  return { 'overtaken', nonce }
end
redis.call('ZSCORE', ended, '')
redis.call('SET', counter, fence)
if vote.top < tonumber(fence) then
  redis.call('HSET', node, 'top', fence)
end
redis.call('HSET', info, 'fence', fence, 'lead', ARGV[5])
if record[3] and not record[4] then
  local now = instants(redis.call('TIME'))
  local forget = now + redis.call('PTTL', lock) + ARGV[4]
  remember(ended, now, forget, 'k:' .. record[3])
end
return { 'ratified', nonce }
