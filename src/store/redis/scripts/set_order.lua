#!lua flags=allow-oom
-- Set order: sets the order that a lock remembers, if it is still the expected one.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value; names the other keys of the lock
-- ARGV
--   1  the order that the lock should remember now, in 16 digits, or empty for none
--   2  the order that the lock remembers from now on, in 16 digits, or empty for none
-- Reply
--   set KEYS 1:                        also if the lock remembers the new order already
--   changed KEYS 1: remembered, time   nothing was changed; remembered: what the lock remembers, or empty
-- Replay
--   Answers `set`, unless the lock was granted for another order since. A late copy is carried out if the lock
--   remembers the expected order again.
-- Clock
--   TIME of this Redis, only if nothing is changed.
-- Cluster
--   Key 1 has the name as hash tag, and so has `:order`.
-- Cost
--   O(1).

local lock, seen, new = KEYS[1], ARGV[1], ARGV[2]
local name = string.sub(lock, 1, -5)

-- import clock
-- import field
-- import order

local record = highest()
local number = record and highest_number(record) or ''
if number ~= seen and number ~= new then
  redis.call('DEL', name .. 'absent')
  return 'changed ' .. lock .. ' ' .. field(record or '') .. '16:' .. clock()
end
if new == '' then
  redis.call('DEL', name .. 'order')
else
  redis.call('SET', name .. 'order', new .. NO_ORDER, 'PX', 'ORDER_KEEP')
end
return 'set ' .. lock .. ' '
