#!lua flags=allow-oom
-- Confirm: turns a provisional grant into a lease of the attempt, for its full TTL.
--
-- KEYS
--   1  lock     string: the lease, or a foreign value
--   2  gateway  string: the liveness key of this gateway
--   4  slots    bitmap: only for a shared lock while its slot is being moved; 2 and 3 are then `shared` and `leases`
--   While the slot is being moved only key 1 is given, or these four.
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
-- Reply
--   confirmed ARGV 1: lease, time
--   lost ARGV 1:        the grant has ended, or the attempt has left and the grant is for its kept position, or the
--                       attempt must ask again because of its order
--   replaced ARGV 1:  a newer request under its idempotency key keeps the lease
--   shared ARGV 1:      nothing was done: the lock is shared, and its other keys must be given
--   moving ARGV 1:      nothing was done: while the slot is being moved, the lease was not found with these keys
-- Replay
--   Answers the lease again, as it is by then. Never brings back a lease that has ended.
-- Clock
--   TIME of this Redis, once. The lease expires at the latest at its limit.
-- Cluster
--   Key 1 has the name as hash tag, key 2 a tag of the same slot. While the slot is being moved, the
--   script uses only the lock, which exists as long as the lease does.
-- Cost
--   O(1).

local lock, id = KEYS[1], ARGV[1]
local name = string.sub(lock, 1, -5)
local held = redis.call('GET', lock)

-- import clock
-- import field
-- import lease
-- import shared
-- import grant_ttl
-- import order
-- import settle_lease

local whole, us, share = KEYS[2] and not KEYS[4], clock(), nil
if is_shared(held) then
  if not KEYS[2] then
    return 'shared ' .. id .. ' '
  end
  share = sharing()
  held = share.find(id, us)
end
if not (held and (share or is_lease(held))) or lease_id(held) ~= id then
  return (whole and 'lost ' or 'moving ') .. id .. ' '
end
-- A newer request under the same idempotency key may have been answered the lease meanwhile, and keeps it.
if kept_by(held) ~= id_token(id) then
  return 'replaced ' .. id .. ' '
end
-- A kept position means that the attempt has left, and that this command is a late copy.
held = not lease_state_is(held, 'k') and settle_lease(held, us, share, not whole)
if not held then
  return 'lost ' .. id .. ' '
end
if whole then
  redis.call('PEXPIRE', KEYS[2], '6000')
end
return 'confirmed ' .. id .. ' ' .. field(held) .. field(us)
