-- Release: ends a living lease and passes the lock on.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
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
--   {layout, ARGV 1, news, version}  the record is not of this layout
-- Replay
--   A lease that was acquired with an idempotency key is answered `released` again as long as its
--   end is remembered; any other is not held any more.
-- Clock
--   TIME of this Redis, only where an end is remembered or somebody waits.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local at = {
  lock = KEYS[1], info = KEYS[2], ended = KEYS[3], counter = KEYS[4], queue = KEYS[5],
  waiters = KEYS[6], me = ARGV[4], floor = ARGV[3], tombstone = ARGV[2], news = {},
}
local token = ARGV[1]

local held = redis.call('GET', at.lock)
local record, layout = read_record(at.info, 'idem')
if layout then
  return { 'layout', token, at.news, layout }
end
if held ~= token then
  local now = instants(redis.call('TIME'))
  if remembers(at.ended, 'r:' .. token, now) then
    return { 'released', token, at.news }
  end
  return { held and 'another' or 'free', token, at.news }
end
if ARGV[5] ~= '' and keeper_of(at.info, token) ~= ARGV[5] then
  return { 'adopted', token, at.news }
end

look(at)
local key = record and record[2] == token and record[3]
if key then
  redis.call('ZSCORE', at.ended, '')
end

local now, us
if key or at.head then
  now, us = instants(redis.call('TIME'))
end
-- Every first write here is one that Redis does not refuse when it is out of memory. The lock goes
-- last of what is the caller's: stopped half-way, it is still held and can be released again.
if key then
  local forget = digits(now + ARGV[2])
  remember(at.ended, now, forget, 'k:' .. key, forget, 'r:' .. token)
end
redis.call('DEL', at.lock, at.info)
if now then
  hand_over(at, now, us, false)
end
return { 'released', token, at.news }
