#!lua flags=allow-oom
-- List: shows who holds a lock that a scan has found.
--
-- KEYS
--   1  lock  string: the lease, or what a foreign client has written
-- ARGV
--   1  how many of the leases that share it are shown
--   2  the fence of the only one that is shown, in 16 digits, if there is one with it; else nothing
-- Reply
--   held KEYS 1: what is left in ms, lease, time
--   shared KEYS 1: what is left in ms, how many, when to look again in ms, leases, time
--   foreign KEYS 1: what is left in ms, mark  no lease of ours; -1: for ever
--   odd KEYS 1: what is left in ms            there is something that is not to be understood
--   free KEYS 1:
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for the length of a foreign value, and O(m) for the m leases that are shown, or share it.

local lock = KEYS[1]
local name = string.sub(lock, 1, -5)

-- import clock
-- import field
-- import lease
-- import shared

-- What is of another type must not keep the others on the page from being shown.
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
