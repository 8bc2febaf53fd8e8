#!lua flags=allow-oom
-- Renew: makes a living lease last from now.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  queue    zset: the tickets by their order
--   5  waiters  hash: the record of each ticket
--   While the slot is being moved only keys 1 and 2 are given, or 1 to 3.
-- ARGV
--   1  the hash of the token
--   2  ttl in ms, or empty for the lease's own
--   3  how long to remember an end, in ms
--   4  who renews it as its keeper, or empty
--   5  1 if that one adopts it, else 0
--   6  the mark that an earlier `marked` has answered, or empty
--   7  the id of this gateway
--   8  a mark for the lease: of this copy of the command, or with ARGV 6 of all its copies
-- Reply
--   {renewed, ARGV 1, news, lease ..}
--   {marked, ARGV 1, mark}     nothing was done yet: to be asked again with this mark
--   {adopted, ARGV 1}          another keeper goes on with it
--   {another | free, ARGV 1}   the token does not hold the lock; is somebody else holding it?
--   {broken, ARGV 1, 0 | 1}    its lease was broken; 1: somebody else is holding the lock
--   {layout, ARGV 1, version}  the record is not of this layout
--   {keyed, ARGV 1}            nothing was done: key 3 is needed
--   {moving, ARGV 1}           nothing was done: the token does not hold the lock, and what became of it
--                              is not to be seen
-- Replay
--   Renews again. Never brings back what has ended. A ttl that is shorter than what the lease has marks
--   it, and whoever renews a marked lease must name the mark that it has, and leaves another one. So a
--   copy that arrives late neither makes the lease end sooner than its holder was told, nor last longer
--   than whoever made it shorter.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant, at the latest at the limit.
-- Cluster
--   All keys carry the name as hash tag. While the slot is being moved it does with the lease's own keys,
--   which are there as long as the lease is.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, named, me, stamp, news = ARGV[1], ARGV[6], ARGV[7], ARGV[8], {}

-- import time
-- import record
-- import memory
-- import keeper
-- import adopt
-- import tell

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'sooner', unpack(TOLD))
if layout then
  return { 'layout', token, layout }
end
if held ~= token and not queue then
  return { 'moving', token }
end
if held ~= token then
  if remembers(ended, 'b:' .. token, instants(redis.call('TIME'))) then
    return { 'broken', token, held and 1 or 0 }
  end
  return { held and 'another' or 'free', token }
end
if not record or record[2] ~= token then
  return { 'another', token }
end
if ARGV[4] ~= '' and ARGV[5] == '0' and keeper_of(token) ~= ARGV[4] then
  return { 'adopted', token }
end
if not ended and (record[3] or ARGV[5] == '1') then
  return { 'keyed', token }
end

local now = instants(redis.call('TIME'))
local ttl, hold = tonumber(ARGV[2]) or tonumber(record[6]), tonumber(record[8])
local expiry = math.min(now + ttl, hold or math.huge)
if expiry <= now then
  -- Its limit is this very millisecond, and Redis keeps the key until the next.
  redis.call('DEL', lock, info)
  return { 'free', token }
end
local marked = record[4] or ''
if named ~= '' and marked == stamp then
  -- An earlier copy of this command has done it.
  return tell({ 'renewed', token, news }, record, 5, redis.call('PTTL', lock), now)
end
if marked ~= named then
  -- It was marked since this command was sent, or somebody has renewed it since the answer.
  return { 'marked', token, marked }
end
-- Every first write here is one that Redis does not refuse when it is out of memory.
if named == '' and ttl < tonumber(record[6]) and expiry ~= hold then
  redis.call('HDEL', info, '')
  redis.call('HSET', info, 'sooner', stamp)
  return { 'marked', token, stamp }
end
if record[3] then
  redis.call('ZSCORE', ended, '')
end
if ARGV[5] == '1' and not adopt(token, ARGV[4], now, now + ARGV[3]) then
  return { 'adopted', token }
end

local sooner = redis.call('PEXPIREAT', lock, expiry, 'GT') == 0
if sooner then
  redis.call('PEXPIREAT', lock, expiry)
end
redis.call('PEXPIREAT', info, expiry)
if named ~= '' then
  redis.call('HSET', info, 'sooner', stamp)
end
if tonumber(record[6]) ~= ttl then
  redis.call('HSET', info, 'ttl', ttl)
  record[6] = ttl
end
if record[3] then
  remember(ended, now, expiry + ARGV[3], 'k:' .. record[3])
end

-- import send

if sooner and expiry - now < SHORT then
  -- Those who wait look after the lock at its old end. The lease is renewed by now: keys of another
  -- type in the place of the queue are no reason to fail any more.
  local foremost = queue and redis.pcall('ZRANGE', queue, 0, 0)[1]
  if foremost or queue then
    foretell(foremost and redis.pcall('HMGET', waiters, foremost)[1], expiry - now)
  else
    -- Whether somebody waits is not to be seen.
    send('all', 'ends', string.format('%.0f', expiry - now))
  end
end
return tell({ 'renewed', token, news }, record, 5, expiry - now, now)
