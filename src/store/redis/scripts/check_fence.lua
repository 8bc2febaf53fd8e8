#!lua flags=allow-oom
-- Check fence: says whether a lease with a fencing token holds the lock.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value
-- ARGV
--   1  the fencing token, in 16 digits
--   2  the id of its lease: '2' and the hash of the token, to learn how the lease has ended; otherwise absent
-- Reply
--   held KEYS 1: for how long the lease with this fencing token lasts, in us
--   stale KEYS 1: 1 if a lease with a larger fencing token holds the lock, else 0
--   broken KEYS 1: 0     the lease of ARGV 2 was broken, or has ended because a release request was overdue
--   released KEYS 1: for how long that lease has been released, in us, if another gateway than its own has released it;
--                        otherwise 0
--   TRYAGAIN             an error: the lock is shared, and this server does not have its leases
-- Replay
--   Reads the lock again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag. While the slot is being moved, the lock and its shared leases may be at
--   different servers for a moment.
-- Cost
--   O(1), or O(m) for the m leases that share the lock.

local lock, fence = KEYS[1], ARGV[1]
local name = string.sub(lock, 1, -5)
local held = redis.call('GET', lock)

-- import clock
-- import field
-- import lease
-- import shared
-- import grant_ttl
-- import ended

local us, leases, larger = clock(), {}, '0'
if is_shared(held) then
  leases = sharing().all()
  if #leases == 0 then
    return redis.error_reply('TRYAGAIN the shared leases are not at this server')
  end
elseif is_lease(held) then
  leases = { until_its_end(held, us) }
end
for _, lease in ipairs(leases) do
  if lease_ends(lease) > us then
    -- No caller was told the fencing token of an untold lease, so such a lease protects no write yet; a rest protects
    -- none any more.
    if lease_fence(lease) == fence and not is_untold(lease) and not lease_state_is(lease, 'r') then
      return 'held ' .. lock .. ' ' .. field(string.format('%.0f', lease_ends(lease) - us))
    elseif lease_fence(lease) > fence then
      larger = '1'
    end
  end
end
local letter = ARGV[2] and redis.call('GET', name .. 'of:' .. ARGV[2]) or ''
local at = string.match(letter, '^r(%d*)$')
if at then
  at = tonumber(at)
  return 'released ' .. lock .. ' ' .. field(string.format('%.0f', at and math.max(1, us - at) or 0))
elseif ARGV[2] and ended_by_force(ARGV[2], us) then
  return 'broken ' .. lock .. ' 1:0'
end
return 'stale ' .. lock .. ' 1:' .. larger
