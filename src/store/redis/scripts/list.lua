#!lua flags=allow-oom
-- List: shows the holder of a lock that a scan has found.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value
-- ARGV
--   1  how many leases of a shared lock are shown
--   2  to show only one lease, its fence in 16 digits, if that lease exists; else nothing
-- Reply
--   held KEYS 1: remaining TTL in ms, lease, time
--   shared KEYS 1: remaining TTL in ms, how many leases, how many rests, when to look again in ms, leases, time
--   foreign KEYS 1: remaining TTL in ms, mark  a foreign value; -1: without an expiry
--   odd KEYS 1: remaining TTL in ms            a key of another type
--   free KEYS 1:
-- Replay
--   Reads the lock again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), or the length of a foreign value, or O(m) for the m leases that share the lock.

local lock = KEYS[1]
local name = string.sub(lock, 1, -5)

-- import clock
-- import field
-- import lease
-- import shared

-- A key of another type must not raise, or the other locks on the page would not be shown.
local held = redis.pcall('GET', lock)
if not held then
  return 'free ' .. lock .. ' '
end
local left = redis.call('PTTL', lock)
if type(held) == 'table' then
  return 'odd ' .. lock .. ' ' .. field(left)
elseif is_shared(held) then
  local shown = sharing().show(clock(), ARGV[1], ARGV[2])
  return shown and 'shared ' .. lock .. ' ' .. field(left) .. shown or 'free ' .. lock .. ' '
elseif is_lease(held) then
  return 'held ' .. lock .. ' ' .. field(left) .. field(held) .. field(clock())
end
return 'foreign ' .. lock .. ' ' .. field(left) .. '40:' .. redis.sha1hex(held)
