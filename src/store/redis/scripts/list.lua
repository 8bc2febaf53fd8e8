#!lua flags=allow-oom
-- List: shows who holds a lock that a scan has found.
--
-- KEYS
--   1  lock  string: the lease, or what a foreign client has written
-- ARGV
--   none
-- Reply
--   held KEYS 1: what is left in ms, lease, time
--   foreign KEYS 1: what is left in ms, mark  no lease of ours; -1: for ever
--   odd KEYS 1: what is left in ms            there is something that is not to be understood
--   free KEYS 1:
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   One key.
-- Cost
--   O(1), but for the length of a foreign value.

local lock = KEYS[1]

-- import clock
-- import field
-- import lease

-- What is of another type must not keep the others on the page from being shown.
local held = redis.pcall('GET', lock)
if not held then
  return 'free ' .. lock .. ' '
end
local left = redis.call('PTTL', lock)
if type(held) == 'table' then
  return 'odd ' .. lock .. ' ' .. field(left)
elseif is_lease(held) then
  return 'held ' .. lock .. ' ' .. field(left) .. field(held) .. field(clock())
end
return 'foreign ' .. lock .. ' ' .. field(left) .. '40:' .. redis.sha1hex(held)
