#!lua flags=allow-oom
-- List: shows who holds a lock that a scan has found.
--
-- KEYS
--   1  lock  string: the hash of the holder's token
--   2  info  hash: the lease record
-- ARGV
--   none
-- Reply
--   {held, KEYS 1, what is left in ms, lease ..}
--   {foreign, KEYS 1, what is left in ms, mark}  no lease of ours; -1: for ever
--   {odd, KEYS 1, what is left in ms}            there is something that is not to be understood
--   {free, KEYS 1}
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for the length of a foreign value.

local lock, info = KEYS[1], KEYS[2]

-- import time
-- import record
-- import tell
-- import mark

-- What is of another type must not keep the others on the page from being shown.
local held = redis.pcall('GET', lock)
if not held then
  return { 'free', lock }
end
local left = redis.call('PTTL', lock)
local record = redis.pcall('HMGET', info, 'lock', 'v', unpack(TOLD))
if type(held) == 'table' or record.err then
  return { 'odd', lock, left }
end
if record[1] ~= held or left < 0 then
  return { 'foreign', lock, left, mark(held) }
end
if record[2] ~= LAYOUT then
  return { 'odd', lock, left }
end
local now = instants(redis.call('TIME'))
return tell({ 'held', lock, left }, record, 3, left, now)
