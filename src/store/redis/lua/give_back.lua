#!lua flags=allow-oom
-- Give back: makes sure that an attempt which nobody waits for any more holds nothing, and passes
-- on what it held.
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
--   5  1 to give back only what nobody has heard of, 2 for a grant that was kept back so that nobody
--      can have heard of it, else 0. Only with 0 its idempotency key counts as used
--   6  the fence of the grant that is meant, or empty for whatever the attempt holds
-- Reply
--   {given_back, ARGV 1, news}
--   {kept, ARGV 1, news}             its lease was adopted or answered again under its idempotency
--                                    key, or somebody has heard of it after all
--   {nothing, ARGV 1, news}          it holds nothing, and never will; or the grant that is meant is
--                                    over
--   {layout, ARGV 1, news, version}  the record is not of this layout
-- Replay
--   The attempt is refused for as long as its end is remembered, however late a copy of its acquire
--   arrives.
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
-- import grant
-- import waiter
-- import send
-- import gateways
-- import hand_over

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'returnable', 'unheard', 'keeper', 'fence')
if layout then
  return { 'layout', token, news, layout }
end
local ours = held == token and record and record[2] == token
if ARGV[6] ~= '' and not (ours and record[7] == ARGV[6]) then
  -- Its attempt may have asked again since, and have been granted it anew.
  return { 'nothing', token, news }
end
local now, us = instants(redis.call('TIME'))
look(redis.call('ZRANGE', queue, 0, 1), now)
local forget = now + tombstone
if held ~= token then
  remember(ended, now, forget, 'g:' .. token)
  if head then
    local waiter = read_waiter(redis.call('HMGET', waiters, token)[1])
    take_out({ token }, { waiter and 'k:' .. waiter.key })
    if not held then
      -- It may have been the head itself, and must not be granted what it gives up.
      look(redis.call('ZRANGE', queue, 0, 1), now)
      hand_over(now, us, record)
    end
  end
  return { 'nothing', token, news }
end

local key = ours and record[3]
local adopted = ours and (record[6] or token) ~= token
-- Word of the grant may be late, and its attempt have heard of it otherwise.
local heard = ARGV[5] == '1' and ours and not record[5]
if adopted or heard or (key and not record[4]) then
  return { 'kept', token, news }
end
-- The lock goes last: stopped half-way, it is still held and can be given back again.
if key and ARGV[5] == '0' then
  remember(ended, now, forget, 'g:' .. token, forget, 'k:' .. key)
else
  remember(ended, now, forget, 'g:' .. token)
  if key then
    redis.call('ZREM', ended, 'k:' .. key)
  end
end
redis.call('DEL', lock, info)
hand_over(now, us, false)
return { 'given_back', token, news }
