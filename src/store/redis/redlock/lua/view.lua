#!lua flags=allow-oom
-- View: finds the holder of a lock at one node of a quorum.
--
-- KEYS
--   1  lock  string: the hash of the holder's token
--   2  info  hash: the lease record
-- ARGV
--   1  1 to leave out a lease whose grant was not delivered, or nothing
-- Reply
--   {held, KEYS 1, token, lease ..}
--   {foreign, KEYS 1, ms left, mark}  a foreign value; -1: without an expiry
--   {free, KEYS 1}
--   {layout, KEYS 1, version}         the record is not of this layout
-- Replay
--   Reads the holder again.
-- Clock
--   TIME of this node, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for the length of a foreign value.

local lock, info = KEYS[1], KEYS[2]

-- import time
-- import record
-- import lease_reply

local held = redis.call('GET', lock)
if not held then
  return { 'free', lock }
end
local left = redis.call('PTTL', lock)
local record, layout = read_record(info, 'lead', 'provisional', unpack(TOLD))
if layout then
  return { 'layout', lock, layout }
end
if not record or record[2] ~= held or left < 0 then
  return { 'foreign', lock, left, redis.sha1hex(held) }
end
if ARGV[1] and record[4] then
  return { 'free', lock }
end
-- The time left counts from the beginning of the lease, not from when this node took part in the lease.
left = math.max(0, left - (tonumber(record[3]) or 0))
return tell({ 'held', lock, held }, record, 5, left, instants(redis.call('TIME')))
