#!lua flags=allow-oom
-- Lapse: takes a place out of the queue that was kept for a request which has not come.
--
-- KEYS
--   1  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   2  queue    zset: the tickets by their order
--   3  waiters  hash: the record of each ticket
-- ARGV
--   1  the hash of the token, which is the identity of the attempt and its ticket
--   2  how long to remember an end, in ms
-- Reply
--   {lapsed, ARGV 1}
--   {kept, ARGV 1}    it is kept for longer, somebody stands there, or it is gone
-- Replay
--   Has lapsed already.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(log n) in the number of memories and of tickets of this name.

local ended, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, tombstone = ARGV[1], ARGV[2]

-- import time
-- import memory
-- import waiter

local waiter = read_waiter(redis.call('HMGET', waiters, token)[1])
local now = instants(redis.call('TIME'))
if not waiter or waiter.gateway ~= '' or waiter.ends > now then
  return { 'kept', token }
end
if waiter.late == '1' then
  -- A copy of its acquire that is still on its way must not queue it again.
  remember(ended, now, now + tombstone, 'g:' .. token)
end
take_out({ token }, { 'k:' .. waiter.key })
return { 'lapsed', token }
