#!lua flags=allow-oom
-- Renew: restarts the TTL of a living lease, and never makes the lease end earlier.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot, which says that the slot is not being moved
--   4  slots  bitmap: only for a shared lock while its slot is being moved; 2 and 3 are then `shared` and `leases`
--   While the slot is being moved only key 1 is given, or these four.
-- ARGV
--   1  the id of the lease: '2' and the hash of its token
--   2  ttl in ms, or empty for the ttl of the lease
--   3  the longest ttl that the caller may have, in ms, or empty; a longer ttl, also of the lease, is cut to this ttl
--   4  the recipient that renews the lease, if a recipient does
--   5  1 if that recipient adopts the lease
-- Reply
--   renewed ARGV 1: lease, time, and the instant at which the lease would have ended
--   adopted ARGV 1:             another recipient has adopted the lease, or this adoption was given back
--   another | free ARGV 1: 0 | 1
--                               the token does not hold the lock; 1: another holder has the lock
--   broken ARGV 1: 0 | 1        the lease was broken; 1: another holder has the lock
--   overdue ARGV 1: 0 | 1       the lease has ended, and a release request for it is overdue; 1: as above
--   shared ARGV 1:              nothing was done: the lock is shared, and its other keys must be given
--   moving ARGV 1:              nothing was done: needed keys cannot be used while the slot is being moved
-- Replay
--   Renews again. Never brings back a lease that has ended. A late copy may change the stored ttl, but never makes the
--   lease end earlier than its holder was told.
-- Clock
--   TIME of this Redis, once. The lease expires at the latest at its limit.
-- Cluster
--   As for acquire. While the slot is being moved, the script uses only the lock, which exists as long as the lease
--   does. An adoption waits until the move is over.
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
    -- The limit of the lease is in this millisecond, and Redis keeps the key until the next.
    if share then
      held = share.remove(id, held, us) > 0
    else
      redis.call('DEL', lock)
      held = false
    end
  end
  return (forced or held and 'another ' or 'free ') .. id .. ' 1:' .. (held and '1' or '0')
end
local recipient, adopts = ARGV[4], ARGV[5]
if recipient and not adopts and kept_by(held) ~= recipient then
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
if adopts and before ~= recipient then
  -- A recipient whose lease was adopted by another recipient is refused: its command is a late copy, and the newer
  -- recipient keeps the lease. So is an adoption that was given back, because its caller no longer waits for it.
  local became = redis.call('GET', name .. 'of:2' .. recipient)
  if became == 'a' or became == 'g' then
    return 'adopted ' .. id .. ' '
  end
  remember_end('2' .. before, 'a', left + TOMBSTONE)
  before = recipient
end
-- A renewal by the holder proves that the grant was delivered. A failover may have undone that it was confirmed.
if whole and is_untold(held) then
-- import order
  remember_order(held)
end
recipient, ttl = adopts and before or lease_recipient(held), string.format('%08.0f', ttl)
held = lease_with(held, { state = 'h', ends = ends, ttl = ttl, recipient = recipient })
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
