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
--   5  1 if nobody has ever heard of the grant, else 0
-- Reply
--   {given_back, ARGV 1, news}
--   {kept, ARGV 1, news}             its lease was adopted, answered again under its key, or heard of
--   {nothing, ARGV 1, news}          it holds nothing, and never will
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

local at = {
  lock = KEYS[1], info = KEYS[2], ended = KEYS[3], counter = KEYS[4], queue = KEYS[5],
  waiters = KEYS[6], me = ARGV[4], floor = ARGV[3], tombstone = ARGV[2], news = {},
}
local token = ARGV[1]

local held = redis.call('GET', at.lock)
local record, layout = read_record(at.info, 'idem', 'returnable', 'keeper', 'heard')
if layout then
  return { 'layout', token, at.news, layout }
end
redis.call('ZSCORE', at.ended, '')
look(at)
local now, us = instants(redis.call('TIME'))
local forget = digits(now + ARGV[2])
if held ~= token then
  remember(at.ended, now, forget, 'g:' .. token)
  if at.head then
    local waiter = read_waiter(redis.call('HMGET', at.waiters, token)[1])
    take_out(at, { token }, { waiter and 'k:' .. waiter.key })
    if not held then
      hand_over(at, now, us, record)
    end
  end
  return { 'nothing', token, at.news }
end

local key = record and record[2] == token and record[3]
local ours = record and record[2] == token
local adopted = ours and (record[5] or token) ~= token
local heard = ours and record[6] and ARGV[5] == '1'
if adopted or heard or (key and not record[4]) then
  return { 'kept', token, at.news }
end
-- The lock goes last: stopped half-way, it is still held and can be given back again.
if key and ARGV[5] == '0' then
  remember(at.ended, now, forget, 'g:' .. token, forget, 'k:' .. key)
else
  remember(at.ended, now, forget, 'g:' .. token)
  if key then
    redis.call('ZREM', at.ended, 'k:' .. key)
  end
end
redis.call('DEL', at.lock, at.info)
hand_over(at, now, us, false)
return { 'given_back', token, at.news }
