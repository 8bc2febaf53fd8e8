#!lua flags=allow-oom
-- Quorum renew: makes a living lease last from now at one node.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token
--   2  ttl in ms, or empty for the lease's own
--   3  how long to remember an end, in ms
--   4  who renews it as its keeper, or empty
--   5  1 if that one adopts it, else 0
--   6  the mark that an earlier `marked` has answered, or empty
--   7  a mark for the lease: of this copy of the command, or with ARGV 6 of all its copies
-- Reply
--   {renewed, ARGV 1, lease .., what was left before in ms}   -1: an earlier copy of the command has renewed it
--   {marked, ARGV 1, mark}     nothing was done yet: to be asked again with this mark
--   {adopted, ARGV 1}          another keeper goes on with it
--   {another | free, ARGV 1}   the token does not hold the lock; is somebody else holding it?
--   {broken, ARGV 1, 0 | 1}    its lease was broken; 1: somebody else is holding the lock
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Renews again. Never brings back what has ended. A ttl that is shorter than what the lease has marks
--   it, and whoever renews a marked lease must name the mark that it has, and leaves another one. So a
--   copy that arrives late neither makes the lease end sooner than its holder was told, nor last longer
--   than whoever made it shorter.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant, at the latest at the limit.
-- Cluster
--   None: a node of a quorum is in no cluster.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token, named, stamp = ARGV[1], ARGV[6], ARGV[7]

-- import time
-- import record
-- import memory
-- import keeper
-- import adopt
-- import lease_reply

-- Tells how the lease ended, and whether somebody else is holding the lock.
local function lost(held, now)
  if remembers(ended, 'b:' .. token, now) or is_overdue(ended, token, now, ARGV[3]) then
    return { 'broken', token, held and 1 or 0 }
  end
  return { held and 'another' or 'free', token }
end

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'sooner', unpack(TOLD))
if layout then
  return { 'layout', token, layout }
end
if held ~= token then
  return lost(held, instants(redis.call('TIME')))
end
if not record or record[2] ~= token then
  return { 'another', token }
end
if ARGV[4] ~= '' and ARGV[5] == '0' and keeper_of(token) ~= ARGV[4] then
  return { 'adopted', token }
end

local now = instants(redis.call('TIME'))
local ttl = tonumber(ARGV[2]) or tonumber(record[6])
local limit = math.min(tonumber(record[8]) or math.huge, last_instant(record[11]))
local expiry = math.min(now + ttl, limit)
if expiry <= now then
  -- Its limit is this very millisecond, and Redis keeps the key until the next.
  redis.call('DEL', lock, info)
  return lost(false, now)
end
local marked = record[4] or ''
if named ~= '' and marked == stamp then
  -- An earlier copy of this command has done it.
  local reply = tell({ 'renewed', token }, record, 5, redis.call('PTTL', lock), now)
  reply[#reply + 1] = -1
  return reply
end
if marked ~= named then
  -- It was marked since this command was sent, or somebody has renewed it since the answer.
  return { 'marked', token, marked }
end
-- Every first write here is one that Redis does not refuse when it is out of memory.
if named == '' and ttl < tonumber(record[6]) and expiry ~= limit then
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

local left = redis.call('PTTL', lock)
redis.call('PEXPIREAT', lock, expiry)
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

local reply = tell({ 'renewed', token }, record, 5, expiry - now, now)
reply[#reply + 1] = left
return reply
