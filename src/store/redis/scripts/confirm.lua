#!lua flags=allow-oom
-- Confirm: makes a provisional grant the attempt's own, for its full TTL.
--
-- KEYS
--   1  lock     string: the lease, or what a foreign client has written
--   2  gateway  string: there as long as this gateway is alive
--   While the slot is being moved only key 1 is given.
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
-- Reply
--   confirmed ARGV 1: lease, time
--   lost ARGV 1:        it came too late, or the attempt has left and its place was granted the lock
--   superseded ARGV 1:  a newer request under its idempotency key keeps the lease
--   moving ARGV 1:      nothing was done: there may be more to see of it
-- Replay
--   Answers the lease again, as it is by then. Never brings back what has ended.
-- Clock
--   TIME of this Redis, once. The lease expires at the latest at its limit.
-- Cluster
--   Key 1 carries the name as hash tag, key 2 a tag of the same slot. While the slot is being moved it
--   does with the lock alone, which is there as long as the lease is.
-- Cost
--   O(1).

local lock, id = KEYS[1], ARGV[1]
local name = string.sub(lock, 1, -5)
local held = redis.call('GET', lock)

-- import clock
-- import field
-- import lease
-- import grant_ttl

if not is_lease(held) or string.sub(held, 1, 65) ~= id then
  return (KEYS[2] and 'lost ' or 'moving ') .. id .. ' '
end
-- A newer request under the same idempotency key may have been answered it meanwhile, and keeps it.
if kept_by(held) ~= string.sub(id, 2) then
  return 'superseded ' .. id .. ' '
end
local us = clock()
-- The attempt has left if its place was kept: then this is a copy from before.
held = string.byte(held, 66) ~= 107 and settle_lease(held, us, not KEYS[2])
if not held then
  return 'lost ' .. id .. ' '
end
if KEYS[2] then
  redis.call('PEXPIRE', KEYS[2], '6000')
end
return 'confirmed ' .. id .. ' ' .. field(held) .. field(us)
