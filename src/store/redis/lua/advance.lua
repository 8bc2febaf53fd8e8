-- Advance: passes a lock that nobody holds to the head of its queue.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
-- ARGV
--   1  how long to remember an end, in ms
--   2  the highest fence that the gateway has seen in this slot
--   3  the id of this gateway
-- Reply
--   {held, KEYS 1, news, what is left in ms}  somebody holds it; -1: for ever
--   {passed, KEYS 1, news}             it was free, and somebody was queued
--   {idle, KEYS 1, news}               it is free, and nobody is queued
--   {layout, KEYS 1, news, version}    the record is not of this layout
-- Replay
--   Somebody holds it by then.
-- Clock
--   TIME of this Redis, only where the lock is free.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local at = {
  lock = KEYS[1], info = KEYS[2], ended = KEYS[3], counter = KEYS[4], queue = KEYS[5],
  waiters = KEYS[6], me = ARGV[3], floor = ARGV[2], tombstone = ARGV[1], news = {},
}

if redis.call('GET', at.lock) then
  return { 'held', at.lock, at.news, redis.call('PTTL', at.lock) }
end
local record, layout = read_record(at.info)
if layout then
  return { 'layout', at.lock, at.news, layout }
end
look(at)
if not at.head then
  return { 'idle', at.lock, at.news }
end
local now, us = instants(redis.call('TIME'))
hand_over(at, now, us, record)
return { 'passed', at.lock, at.news }
