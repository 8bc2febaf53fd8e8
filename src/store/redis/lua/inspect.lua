-- Inspect: shows who holds the lock.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
-- ARGV
--   none
-- Reply
--   {free, KEYS 1}
--   {held, KEYS 1, lease ..}
--   {foreign, KEYS 1, pttl}    a client that is no gateway holds it
--   {layout, KEYS 1, version}  the record is not of this layout
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, only where a lease is shown.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1).

local lock, info = KEYS[1], KEYS[2]

local held = redis.call('GET', lock)
if not held then
  return { 'free', lock }
end
local record, layout = read_record(info, unpack(TOLD))
if layout then
  return { 'layout', lock, layout }
end
local left = redis.call('PTTL', lock)
if not record or record[2] ~= held or left < 0 then
  return { 'foreign', lock, left }
end
return tell('held', lock, record, 3, left, (instants(redis.call('TIME'))))
