#!lua flags=allow-oom
-- Leave: takes an attempt out of the queue, or keeps its place for a request that asks again.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
-- ARGV
--   1  the hash of the token, which is the identity of the attempt and its ticket
--   2  how long to remember an end, in ms
--   3  the highest fence that the gateway has seen in this slot
--   4  the id of this gateway
--   5  how long to keep the place, in ms, or empty
-- Reply
--   {left, ARGV 1, news, contention ..}
--   {granted, ARGV 1, news, lease ..}  it holds the lock, for its full TTL from now
--   {superseded, ARGV 1, news}         a newer request with its idempotency key has its place, or keeps
--                                      its lease
--   {layout, ARGV 1, news, version}    the record is not of this layout
-- Replay
--   Has left already; a place that is kept is kept from then.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, info, ended, counter, queue, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, tombstone, floor, me, news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], {}

-- import time
-- import record
-- import memory
-- import keeper
-- import tell
-- import settle
-- import grant
-- import waiter
-- import send
-- import gateways
-- import hand_over
-- import mark
-- import contend

local held = redis.call('GET', lock)
local record, layout = read_record(info)
if layout then
  return { 'layout', token, news, layout }
end
local now, us = instants(redis.call('TIME'))
look(redis.call('ZRANGE', queue, 0, 1), now)
if not held and head then
  -- It may be the head itself, in the last moment.
  hand_over(now, us, record)
  held = redis.call('GET', lock)
  record = read_record(info)
end
if held == token and record and record[2] == token then
  if keeper_of(token) ~= token then
    return { 'superseded', token, news }
  end
  local left = settle(token, now)
  if left then
    return tell({ 'granted', token, news }, redis.call('HMGET', info, unpack(TOLD)), 1, left, now)
  end
end

local waiter = head and read_waiter(redis.call('HMGET', waiters, token)[1])
if not waiter then
  if remembers(ended, 's:' .. token, now) then
    return { 'superseded', token, news }
  end
  -- Its place may have been lost, and with it whether a copy of its acquire is still on its way.
  remember(ended, now, now + tombstone, 'g:' .. token)
elseif ARGV[5] ~= '' and waiter.key ~= '' then
  waiter.gateway, waiter.ends = '', now + ARGV[5]
  -- The first write is one that Redis does not refuse when it is out of memory.
  redis.call('HDEL', waiters, '')
  redis.call('HSET', waiters, token, write_waiter(waiter))
  outlive(now, waiter.ends)
else
  if waiter.late == '1' then
    -- A copy of its acquire that is still on its way must not queue it again.
    remember(ended, now, now + tombstone, 'g:' .. token)
  end
  take_out({ token }, { 'k:' .. waiter.key })
end
return contend({ 'left', token, news }, now)
