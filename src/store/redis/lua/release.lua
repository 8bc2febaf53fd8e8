#!lua flags=allow-oom
-- Release: ends a living lease and passes the lock on.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
--   While the slot is being moved only keys 1 and 2 are given, or 1 to 3.
-- ARGV
--   1  the hash of the token
--   2  how long to remember an end, in ms
--   3  the highest fence that the gateway has seen in this slot
--   4  the id of this gateway
--   5  who releases it as its keeper, or empty
-- Reply
--   {released, ARGV 1, news}
--   {adopted, ARGV 1, news}          another keeper goes on with it
--   {another | free, ARGV 1, news}   the token does not hold the lock; is somebody else holding it?
--   {broken, ARGV 1, news, 0 | 1}    its lease was broken; 1: somebody else is holding the lock
--   {layout, ARGV 1, news, version}  the record is not of this layout
--   {keyed, ARGV 1, news}            nothing was done: key 3 is needed
--   {moving, ARGV 1, news}           nothing was done: the token does not hold the lock, and what became
--                                    of it is not to be seen
-- Replay
--   A lease that was acquired with an idempotency key is answered `released` again as long as its
--   end is remembered; any other is not held any more.
-- Clock
--   TIME of this Redis, only where an end is remembered or somebody waits.
-- Cluster
--   As for acquire; but while the slot is being moved it does with the lease's own keys, which are there
--   as long as the lease is. Nobody is handed the lock then: who waits for it finds out.
-- Cost
--   As for acquire.

local lock, info, ended, counter, queue, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, tombstone, floor, me, news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], {}

-- import record

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'keeper')
if layout then
  return { 'layout', token, news, layout }
end
if held == token and ARGV[5] ~= '' and (record and record[4] or token) ~= ARGV[5] then
  return { 'adopted', token, news }
end
local key = held == token and record and record[2] == token and record[3]
if held ~= token and not queue then
  return { 'moving', token, news }
end
if key and not ended then
  return { 'keyed', token, news }
end
local waiting = held == token and queue and redis.call('ZRANGE', queue, 0, 1) or {}
if held == token and not key and not waiting[1] then
  redis.call('DEL', lock, info)
  return { 'released', token, news }
end

-- import time
-- import memory
-- import grant
-- import waiter
-- import send
-- import gateways
-- import hand_over

local now, us = instants(redis.call('TIME'))
if held ~= token then
  if remembers(ended, 'r:' .. token, now) then
    return { 'released', token, news }
  end
  if remembers(ended, 'b:' .. token, now) then
    return { 'broken', token, news, held and 1 or 0 }
  end
  return { held and 'another' or 'free', token, news }
end

look(waiting, now)
-- Every first write here is one that Redis does not refuse when it is out of memory. The lock goes
-- last of what is the caller's: stopped half-way, it is still held and can be released again.
if key then
  local forget = now + tombstone
  remember(ended, now, forget, 'k:' .. key, forget, 'r:' .. token)
end
redis.call('DEL', lock, info)
if queue then
  hand_over(now, us, false)
end
return { 'released', token, news }
