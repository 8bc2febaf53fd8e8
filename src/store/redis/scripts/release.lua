#!lua flags=allow-oom
-- Release: ends a living lease and passes the lock on; or lets the lock rest, if the minimum hold of the lease is not
-- over.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
--   4  slots  bitmap: only for a shared lock while its slot is being moved; 2 and 3 are then `shared` and `leases`
--   While the slot is being moved only key 1 is given, or these four.
-- ARGV
--   1  the id of the lease: '2' and the hash of its token
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  the recipient that releases the lease, if a recipient does; otherwise absent or empty
--   4  1 if the lease was delivered to no caller, or was not used: the lock does not rest; otherwise absent or empty
--   5  1 if another gateway has granted the lease: its end is remembered until that gateway has asked; otherwise absent
-- Reply
--   released ARGV 1: news, lease  lease: the fence of the lease, and since when it was held in us, in 16 digits each,
--                                with ARGV 5 also the time, and 1 if the lease had a minimum hold that counts, else
--                                0; nothing if an earlier copy has ended the lease
--   adopted ARGV 1: news, recipient  this other recipient has the lease
--   another | free ARGV 1: news, 0 | 1
--                                the token does not hold the lock; 1: another holder has the lock
--   broken ARGV 1: news, 0 | 1   the lease was broken; 1: another holder has the lock
--   overdue ARGV 1: news, 0 | 1  the lease has ended, and a release request for it is overdue; 1: as above
--   shared ARGV 1: news          nothing was done: the lock is shared, and its other keys must be given
--   moving ARGV 1: news          nothing was done: the token does not hold the lock, and how its lease ended, or the
--                                order that the lock remembers, cannot be read while the slot is being moved
-- Replay
--   A lease whose end is remembered is answered `released` again; any other lease is answered as no longer held.
-- Clock
--   TIME of this Redis, unless the token holds the lock alone and there is neither a waiter nor a minimum hold, and
--   ARGV 5 is absent.
-- Cluster
--   As for acquire. But while the slot is being moved, the script uses only the lock, which exists as long as the lease
--   does. The lock is then passed to no waiter (gateways notice that it is free), and the end is not remembered.
-- Cost
--   As for acquire.

-- import clock

local lock, id, releaser, used, elsewhere = KEYS[1], ARGV[1], ARGV[3] ~= '' and ARGV[3], ARGV[4] ~= '1', ARGV[5]
local name = string.sub(lock, 1, -5)
-- The fixed fields of the lease, and the idempotency key if the lease has one.
local held = redis.call('GETRANGE', lock, lease_range('id', 'key'))
local ours = lease_id(held) == id
if ours and releaser then
  local recipient = lease_recipient(held)
  recipient = string.byte(recipient) == 32 and id_token(id) or recipient
  if recipient ~= releaser then
    return 'adopted ' .. id .. ' 0:64:' .. recipient
  end
end
-- Whether the lock may rest. Most leases have no minimum hold, and need none of the parts below.
local rests = ours and used and lease_min_hold(held) ~= '00000000'
if ours and (not used or lease_state_is(held, 'p') or lease_state_is(held, 'k')) then
-- import order
  local lease = redis.call('GET', lock)
  if not KEYS[2] and order_of(lease) then
    return 'moving ' .. id .. ' 0:'
  elseif used then
    -- A failover may have undone that the grant was confirmed.
    remember_order(lease)
  else
    -- The next waiter is compared with what the lock remembers without this lease.
    forget_order(lease)
  end
end
if not KEYS[2] and not rests then
  if not ours then
    return (held == '2*' and 'shared ' or 'moving ') .. id .. ' 0:'
  end
  redis.call('DEL', lock)
  return 'released ' .. id .. ' 0:32:' .. lease_span(held, 'fence', 'since')
end

-- How late the gateway that granted a lease may ask how the lease has ended, in ms.
local ASKED_WITHIN = 30000

-- Remembers a release; `rest`: how long the lock rests, in ms. Answers which lease has ended, for the reply.
local function remember_release(lease, rest)
  if lease_mode_below(lease, 'a') then
    -- The holder was asked to release the lease, and has released it in time.
    redis.call('DEL', name .. 'asked:' .. id)
  end
  local lasts, us, ended = (rest or 0) + TOMBSTONE, '', '32:' .. lease_span(lease, 'fence', 'since')
  if elsewhere then
    us = clock()
    local min_hold = used and lease_min_hold(lease) ~= '00000000' and '1' or '0'
    ended = '49:' .. lease_span(lease, 'fence', 'since') .. us .. min_hold
  end
  local keyed = lease_keyed_is(lease, '1')
  if keyed then
    redis.call('SET', name .. 'key:' .. lease_key(lease), 'l' .. id, 'PX', lasts)
  end
  if elsewhere then
    -- The gateway that granted a lease asks about it within five seconds, and then when the lease would have ended.
    local left = us - lease_since(lease) < 5000000 and 0 or (lease_ends(lease) - us) / 1000
    lasts = string.format('%.0f', math.max(keyed and lasts or 0, left + ASKED_WITHIN))
  end
  if keyed or elsewhere then
    redis.call('SET', name .. 'of:' .. id, 'r' .. us, 'PX', lasts)
  end
  return ended
end

local wait = name .. 'wait'
local head = ours and not rests and redis.call('LINDEX', wait, '0')
if ours and not rests and not head then
  local ended = remember_release(held)
  redis.call('DEL', lock)
  return 'released ' .. id .. ' 0:' .. ended
end

local counter, floor, me, news = KEYS[2], ARGV[2], floor_gateway(ARGV[2]), ''

-- import fence
-- import field
-- import lease
-- import rest
-- import ended
-- import shared
-- import send
-- import gateways
-- import order
-- import hand_over

if not ours then
  local alone, us, share = KEYS[4], clock(), is_shared(held) and sharing()
  local lease = share and share.find(id, us)
  if not lease and alone then
    return 'moving ' .. id .. ' 0:'
  elseif not lease and string.find(redis.call('GET', name .. 'of:' .. id) or '', '^r') then
    return 'released ' .. id .. ' 0:'
  elseif not lease then
    return (ended_by_force(id, us) or held == '' and 'free ' or 'another ') .. id .. ' 0:1:' .. (held == '' and '0' or '1')
  elseif releaser and kept_by(lease) ~= releaser then
    return 'adopted ' .. id .. ' 0:64:' .. kept_by(lease)
  end
  local rest, lasts, ended
  if used then
    rest, lasts = rest_of(lease, us)
  end
  local left = rest and share.rest(id, rest, us) or share.remove(id, lease, us)
  if not alone then
    ended = remember_release(lease, lasts)
    pass_freed(us, share, left)
  elseif left > 0 and not rest then
    share.end_with_last(us)
  end
  return 'released ' .. id .. ' ' .. field(news) .. (ended or '32:' .. lease_span(lease, 'fence', 'since'))
end

if rests then
  local rest, lasts = rest_of(held, clock())
  local ended = '32:' .. lease_span(held, 'fence', 'since')
  if KEYS[2] and rest then
    ended = remember_release(held, lasts)
    -- The rest may end before the time at which the gateways of the waiters look at the lock.
    news = field('6:passed' .. field(string.format('%.0f', lasts)))
    foretell(lasts)
  end
  if rest then
    redis.call('SET', lock, rest, 'PX', lasts)
    return 'released ' .. id .. ' ' .. field(news) .. ended
  end
  if not KEYS[2] then
    redis.call('DEL', lock)
    return 'released ' .. id .. ' 0:' .. ended
  end
end
local passed = hand_over(clock(), nil, 0, head)
local ended = remember_release(held)
if passed ~= 'passed' then
  redis.call('DEL', lock)
end
return 'released ' .. id .. ' ' .. field(news) .. ended
