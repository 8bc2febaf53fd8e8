#!lua flags=allow-oom
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
--   {held, KEYS 1, news, when to look again in ms}  somebody holds it; -1: for ever
--   {passed, KEYS 1, news}                          it was free, and somebody was queued
--   {idle, KEYS 1, news}                            it is free, and nobody is queued
--   {layout, KEYS 1, news, version}                 the record is not of this layout
-- Replay
--   Somebody holds it by then.
-- Clock
--   TIME of this Redis, only where the lock is free.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, info, ended, counter, queue, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local tombstone, floor, me, news = ARGV[1], ARGV[2], ARGV[3], {}

-- How often a grant is looked after that is not confirmed yet.
local OFTEN = 500

local held = redis.call('GET', lock)
if held then
  local left = redis.call('PTTL', lock)
  local fields = redis.call('HMGET', info, 'lock', 'provisional', 'ttl')
  if fields[1] == held and fields[2] then
    -- Confirmed, it ends sooner than it does by itself if its TTL is short, and nobody is told.
    left = math.min(left, math.max(OFTEN, tonumber(fields[3]) or OFTEN))
  end
  return { 'held', lock, news, left }
end

-- import time
-- import record
-- import memory
-- import grant
-- import waiter
-- import send
-- import gateways
-- import hand_over

local record, layout = read_record(info)
if layout then
  return { 'layout', lock, news, layout }
end
local now, us = instants(redis.call('TIME'))
look(redis.call('ZRANGE', queue, 0, 1), now)
if not head then
  return { 'idle', lock, news }
end
hand_over(now, us, record)
return { 'passed', lock, news }
