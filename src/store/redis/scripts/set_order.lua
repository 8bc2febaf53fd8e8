#!lua flags=allow-oom
-- Set order: sets the order that a lock remembers, if it is still the expected one.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value; names the other keys of the lock
-- ARGV
--   1  the order that the lock should remember now, in 16 digits, or empty for none
--   2  the order that the lock remembers from now on, in 16 digits, or empty for none
--   3  a nonce, which is the identity of this change
--   4  1 if an earlier copy of this command may still arrive, else 0
-- Reply
--   set KEYS 1:                        also if the lock remembers the new order already
--   changed KEYS 1: remembered, time   nothing was changed; remembered: what the lock remembers, or empty
-- Replay
--   A change that was carried out is answered `set` again, and what the lock remembers since then is left alone. The
--   lock may remember the expected order again later. So a copy that found another order writes a letter, which keeps
--   earlier copies from changing anything.
-- Clock
--   TIME of this Redis, only if nothing is changed.
-- Cluster
--   Key 1 has the name as hash tag, and so has `:order`.
-- Cost
--   O(1).

local lock, seen, new = KEYS[1], ARGV[1], ARGV[2]
local name = string.sub(lock, 1, -5)
local of = name .. 'of:' .. ARGV[3]

-- import clock
-- import field
-- import order

local record = highest()
local number, became = record and highest_number(record) or '', redis.call('GET', of)
if became == 'x' then
  return 'set ' .. lock .. ' '
elseif became or (number ~= seen and number ~= new) then
  redis.call('DEL', name .. 'absent')
  if ARGV[4] == '1' then
    redis.call('SET', of, 'y', 'PX', TOMBSTONE)
  end
  return 'changed ' .. lock .. ' ' .. field(record or '') .. '16:' .. clock()
end
redis.call('SET', of, 'x', 'PX', TOMBSTONE)
if new == '' then
  redis.call('DEL', name .. 'order')
else
  redis.call('SET', name .. 'order', new .. NO_ORDER, 'PX', 'ORDER_KEEP')
end
return 'set ' .. lock .. ' '
