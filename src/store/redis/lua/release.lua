-- Release: ends a living lease.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token
--   2  how long to remember an end, in ms
-- Reply
--   {released, ARGV 1}
--   {another | free, ARGV 1}   the token does not hold the lock; is somebody else holding it?
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   A lease that was acquired with an idempotency key is answered `released` again as long as its
--   end is remembered; any other is not held any more.
-- Clock
--   TIME of this Redis, only where an end is remembered.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem')
if layout then
  return { 'layout', token, layout }
end
if held ~= token then
  local now = instants(redis.call('TIME'))
  if remembers(ended, 'r:' .. token, now) then
    return { 'released', token }
  end
  return { held and 'another' or 'free', token }
end

local key = record and record[2] == token and record[3]
if not key then
  redis.call('DEL', lock, info)
  return { 'released', token }
end
local now = instants(redis.call('TIME'))
redis.call('ZSCORE', ended, '')

-- The first write is one that Redis does not refuse when it is out of memory.
redis.call('DEL', lock, info)
local forget = digits(now + ARGV[2])
remember(ended, now, forget, 'k:' .. key, forget, 'r:' .. token)
return { 'released', token }
