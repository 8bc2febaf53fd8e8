#!lua flags=allow-oom
-- Replay: answers a lease again under its idempotency key, at one node of a quorum. The attempt that asks keeps the
-- lease from then on.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token of the attempt that asks
--   2  the hash of the idempotency key
--   3  the hash of the token of the lease
--   4  how long to remember an end, in ms
-- Reply
--   {replayed, ARGV 1, salt, lease ..}
--   {collected, ARGV 1, salt, lease ..}  the same, and the lease was answered to no caller before,
--                                        except perhaps to this very attempt
--   {replaced, ARGV 1}                 a newer request under the key keeps the lease
--   {gone, ARGV 1}                       that lease does not live here under this key
-- Replay
--   Answers the same.
-- Clock
--   TIME of this node, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token, key, lease, tombstone = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- import time
-- import memory
-- import recipient
-- import adopt
-- import lease_reply
-- import settle

local record = redis.call('HMGET', info, 'lock', 'idem', 'salt', 'provisional', 'lead', 'collector')
local left = redis.call('PTTL', lock)
if redis.call('GET', lock) ~= lease or left < 0 or record[1] ~= lease or record[2] ~= key then
  return { 'gone', token }
end
local now = instants(redis.call('TIME'))
redis.call('ZSCORE', ended, '')
-- The lease may be delivered by this answer: from now on it is not released as undelivered.
redis.call('HDEL', info, 'returnable')
if not adopt(lease, token, now, now + left + tombstone) then
  return { 'replaced', token }
end
if record[4] then
  left = settle(now)
  if not left then
    return { 'gone', token }
  end
  redis.call('HSET', info, 'collector', token)
else
  -- The time left counts from the beginning of the lease, not from when this node took part in the lease.
  left = math.max(0, left - (tonumber(record[5]) or 0))
end
-- No caller has been told of this lease before, except possibly this very attempt, whose answer may have been lost.
local first = record[4] or record[6] == token
local reply = { first and 'collected' or 'replayed', token, record[3] or '' }
return tell(reply, redis.call('HMGET', info, unpack(TOLD)), 1, left, now)
