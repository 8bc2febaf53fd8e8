#!lua flags=allow-oom
-- Renew: makes a living lease last from now, and never shorter.
--
-- KEYS
--   1  lock   string: the lease, or what a foreign client has written
--   2  fence  string: the fence counter of the slot, which says that the slot is not being moved
--   4  slots   bitmap: only while the slot is being moved, of a lock that is shared; 2 and 3 are then `shared` and `leases`
--   While the slot is being moved only key 1 is given, or these four.
-- ARGV
--   1  the id of the lease: '2' and the hash of its token
--   2  ttl in ms, or empty for the lease's own
--   3  the longest ttl that the caller may have in ms, or empty; a longer one, the lease's own too, becomes this one
--   4  the keeper that renews the lease, if a keeper does
--   5  1 if that keeper adopts the lease
-- Reply
--   renewed ARGV 1: lease, time, and the instant at which the lease would have ended
--   adopted ARGV 1:             another keeper goes on with it
--   another | free ARGV 1: 0 | 1
--                               the token does not hold the lock; 1: somebody else is holding it
--   broken ARGV 1: 0 | 1        its lease was broken; 1: somebody else is holding the lock
--   overdue ARGV 1: 0 | 1       the same of one whose holder was asked to release it until a time that is over
--   shared ARGV 1:              nothing was done: the lock is shared, and its other keys must be given
--   moving ARGV 1:              nothing was done: what it takes is not to be seen
-- Replay
--   Renews again. Never brings back what has ended. A copy that arrives late changes the ttl that is stored, and never
--   makes the lease end earlier than its holder was told.
-- Clock
--   TIME of this Redis, once. The lease expires at the latest at its limit.
-- Cluster
--   As for acquire. While the slot is being moved it does with the lock alone, which is there as long as the
--   lease is; only who adopts it waits until the slot is at rest.
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

local whole, share, us = KEYS[2] and not KEYS[4], nil, nil
if is_shared(held) then
  if not KEYS[2] then
    return 'shared ' .. id .. ' '
  end
  share, us = sharing(), clock()
  held = share.find(id, us) or held
end
local mine, since, ttl, left = (share or is_lease(held)) and lease_id(held) == id, nil, nil, 0
if mine then
  us = us or clock()
  since = lease_since(held)
  ttl = math.min(tonumber(ARGV[2]) or tonumber(lease_ttl(held)), tonumber(ARGV[3]) or math.huge)
  left = time_left(held, since, us, ttl)
end
if left <= 0 then
  if not whole then
    return 'moving ' .. id .. ' '
  end
-- import ended
  local forced = ended_by_force(id, us or clock())
  if mine then
    -- Its limit is this very millisecond, and Redis keeps the key until the next.
    if share then
      held = share.remove(id, held, us) > 0
    else
      redis.call('DEL', lock)
      held = false
    end
  end
  return (forced or held and 'another ' or 'free ') .. id .. ' 1:' .. (held and '1' or '0')
end
local keeper, adopts = ARGV[4], ARGV[5]
if keeper and not adopts and kept_by(held) ~= keeper then
  return 'adopted ' .. id .. ' '
elseif adopts and not whole then
  return 'moving ' .. id .. ' '
end

local was, ends = lease_ends(held), string.format('%016.0f', us + left * 1000)
-- No renewal makes a lease end earlier than Redis would end it.
local as_kept = ends < was and until_its_end(held, us)
local kept = as_kept and lease_ends(as_kept)
local lasts = kept and ends < kept
if lasts then
  ends, left = kept, math.ceil((kept - us) / 1000)
end

-- import attempt_marks

local before = kept_by(held)
if adopts and before ~= keeper then
  -- Not one that was its keeper before: that is a late copy of a command, and whoever came after it goes on.
  local became = redis.call('GET', name .. 'of:2' .. keeper)
  if became == 'a' then
    return 'adopted ' .. id .. ' '
  end
  remember_end('2' .. before, 'a', left + TOMBSTONE)
  before = keeper
end
-- Its holder renews it, so that the grant was delivered.
keeper, ttl = adopts and before or lease_keeper(held), string.format('%08.0f', ttl)
held = lease_with(held, { state = 'h', ends = ends, ttl = ttl, keeper = keeper })
if share then
  share.keep(held, us)
elseif lasts then
  redis.call('SET', lock, held, 'KEEPTTL')
else
  redis.call('SET', lock, held, 'PX', left)
end
if whole and lease_keyed_is(held, '1') then
  redis.call('SET', name .. 'key:' .. lease_key(held), 'l' .. id, 'PX', left + TOMBSTONE)
end
return 'renewed ' .. id .. ' ' .. field(held) .. field(us) .. field(was)
