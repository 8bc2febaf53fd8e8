#!lua flags=allow-oom
-- Break: ends what holds the lock, if it is what was meant, and passes the lock on.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
-- ARGV
--   1  a nonce, which is the identity of this break
--   2  how long to remember an end, in ms
--   3  the highest fence that the gateway has seen in this slot
--   4  the id of this gateway
--   5  the fence of the lease that is meant, or empty
--   6  the mark of the foreign value that is meant, or empty
--   7  1 if an earlier copy of this command may still arrive, else 0
-- Reply
--   {broken, ARGV 1, news}
--   {changed, ARGV 1, news}          something else holds it, or nothing
--   {layout, ARGV 1, news, version}  the record is not of this layout
-- Replay
--   What was broken once is answered so again, and what holds the lock by then is left alone. A
--   lease is never granted its fence again; a foreign value may come back, so a copy that found
--   another one keeps the copies before it from doing anything.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, info, ended, counter, queue, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local nonce, tombstone, floor, me, news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], {}

-- import time
-- import record
-- import memory
-- import grant
-- import waiter
-- import send
-- import gateways
-- import hand_over
-- import mark

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'fence', 'idem', 'provisional')
if layout then
  return { 'layout', nonce, news, layout }
end
local now, us = instants(redis.call('TIME'))
if remembers(ended, 'x:' .. nonce, now) then
  return { 'broken', nonce, news }
end
if remembers(ended, 'y:' .. nonce, now) then
  return { 'changed', nonce, news }
end

local ours = held and record and record[2] == held and redis.call('PTTL', lock) >= 0
local meant
if ours then
  meant = record[3] == ARGV[5]
else
  meant = held and mark(held) == ARGV[6]
end
local forget = now + tombstone
if not meant then
  if ARGV[7] == '1' then
    remember(ended, now, forget, 'y:' .. nonce)
  end
  return { 'changed', nonce, news }
end

look(redis.call('ZRANGE', queue, 0, 1), now)
-- Every first write here is one that Redis does not refuse when it is out of memory. The lock goes
-- last: stopped half-way, it is still held and can be broken again.
local ends = { forget, 'x:' .. nonce }
if ours then
  ends[3], ends[4] = forget, 'b:' .. held
  if not record[5] then
    -- Its holder has heard of it: a copy of its acquire that is still on its way must not take the
    -- lock again, and its idempotency key is used.
    ends[5], ends[6] = forget, 'g:' .. held
    if record[4] then
      ends[7], ends[8] = forget, 'k:' .. record[4]
    end
  end
end
remember(ended, now, unpack(ends))
redis.call('DEL', lock, info)
if ours then
  -- Whoever keeps it, at whatever gateway, need not wait for its next renewal.
  send('all', 'broken', held)
end
hand_over(now, us, false)
return { 'broken', nonce, news }
