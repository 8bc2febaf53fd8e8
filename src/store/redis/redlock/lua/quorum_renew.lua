#!lua flags=allow-oom
-- Quorum renew: makes a living lease last its TTL from now at one node, and never shorter than before.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token
--   2  ttl in ms, or empty for the lease's own
--   3  the longest ttl that the caller may have in ms, or empty; a longer ttl, the lease's own too, becomes this ttl
--   4  how long to remember an end, in ms
--   5  the recipient that renews the lease, or empty
--   6  1 if that recipient adopts the lease, else 0
-- Reply
--   {renewed, ARGV 1, lease .., the time that was left before in ms}
--   {adopted, ARGV 1}          another recipient has adopted the lease and keeps it
--   {another | free, ARGV 1}   the token does not hold the lock; another holder has it, or none
--   {broken, ARGV 1, 0 | 1}    its lease was broken; 1: another holder has the lock
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Renews again. Never brings back a lease that has ended. A copy that arrives late changes the ttl that is stored,
--   and never makes the lease end earlier than its holder was told.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant, at the latest at the limit.
-- Cluster
--   None: a node of a quorum is in no cluster.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]

-- import time
-- import record
-- import memory
-- import recipient
-- import adopt
-- import lease_reply

-- The reply that tells the caller how the lease ended, and whether another holder has the lock.
local function lost(held, now)
  if remembers(ended, 'b:' .. token, now) or is_overdue(ended, token, now, ARGV[4]) then
    return { 'broken', token, held and 1 or 0 }
  end
  return { held and 'another' or 'free', token }
end

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', unpack(TOLD))
if layout then
  return { 'layout', token, layout }
end
if held ~= token then
  return lost(held, instants(redis.call('TIME')))
end
if not record or record[2] ~= token then
  return { 'another', token }
end
if ARGV[5] ~= '' and ARGV[6] == '0' and recipient_of(token) ~= ARGV[5] then
  return { 'adopted', token }
end

local now = instants(redis.call('TIME'))
local ttl = math.min(tonumber(ARGV[2]) or tonumber(record[5]), tonumber(ARGV[3]) or math.huge)
local limit = math.min(tonumber(record[7]) or math.huge, last_instant(record[10]))
local left = redis.call('PTTL', lock)
local expiry = math.min(now + math.max(ttl, left), limit)
if expiry <= now then
  -- The hold limit ends in this very millisecond, and Redis keeps the key until the next.
  redis.call('DEL', lock, info)
  return lost(false, now)
end
-- Every command that may be the first write from here on is one that Redis does not refuse when it is out of memory.
if record[3] then
  redis.call('ZSCORE', ended, '')
end
if ARGV[6] == '1' and not adopt(token, ARGV[5], now, now + ARGV[4]) then
  return { 'adopted', token }
end

redis.call('PEXPIREAT', lock, expiry)
redis.call('PEXPIREAT', info, expiry)
if tonumber(record[5]) ~= ttl then
  redis.call('HSET', info, 'ttl', ttl)
  record[5] = ttl
end
if record[3] then
  remember(ended, now, expiry + ARGV[4], 'k:' .. record[3])
end

local reply = tell({ 'renewed', token }, record, 4, expiry - now, now)
reply[#reply + 1] = left
return reply
