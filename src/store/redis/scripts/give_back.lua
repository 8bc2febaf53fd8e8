#!lua flags=allow-oom
-- Give back: releases the undelivered lease of an attempt whose caller no longer waits, makes sure that the attempt
-- holds nothing, and passes the lock on.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  1 to release the lease only if it was not delivered, 2 for a grant that waited for replicas, or that was made
--      for a group and answered to no caller, 3 for an attempt that ended on another server, of which this server
--      may still have the grant or the ticket; else 0. Only with 0 the idempotency key counts as used
--   4  the fence of the grant to release, in 16 digits, or empty for any lease of the attempt; with 3 also a position
--      of the attempt at this gateway is given up
--   5  the recipient that knows that no caller was answered the lease, or nothing
-- Reply
--   given_back ARGV 1: news, fence  the lease was released; its fence, in 16 digits
--   kept ARGV 1: news     the lease was adopted, answered again under its idempotency key, or delivered after all
--   nothing ARGV 1: news  the attempt holds nothing, and never will; or the grant with this fence has ended
-- Replay
--   The attempt is refused for as long as its end is remembered, however late a copy of its acquire
--   arrives.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire; O(n) in the number of waiters if the attempt is a waiter.

local lock, id, counter, floor = KEYS[1], ARGV[1], KEYS[2], ARGV[2]
local name, me, news = string.sub(lock, 1, -5), floor_gateway(ARGV[2]), ''
local wait, of = name .. 'wait', name .. 'of:' .. ARGV[1]

-- import clock
-- import fence
-- import field
-- import lease
-- import shared
-- import attempt_marks
-- import send
-- import gateways
-- import order
-- import hand_over

local held = redis.call('GET', lock)
local lease, share, us = is_lease(held) and lease_id(held) == id and held, is_shared(held) and sharing(), nil
if share then
  us = clock()
  lease = share.find(id, us)
end
local meant = lease and lease_fence(lease) == ARGV[4] or ARGV[4] == '' and ARGV[3] ~= '3'
if ARGV[3] == '3' and not meant then
  -- A group may use the token again through another gateway, whose position must not be given up.
  local body = redis.call('GET', of)
  meant = is_ticket(body) and ticket_gateway(body) == me
end
if not meant then
  -- The grant with this fence is over. The attempt may have asked again and have been granted another lease, which must
  -- stay.
  return 'nothing ' .. id .. ' 0:'
end

if not lease then
  local body = redis.call('GET', of)
  if is_ticket(body) then
    -- The attempt may be the head of the queue. Its ticket is removed first, so that the lock does not pass to the
    -- attempt.
    if is_queued(body) then
      redis.call('LREM', wait, '1', id)
    end
    bury(id, body)
  end
  local count = share and share.prune(us) or 0
  if count > 0 then
    hand_over(us, share, count)
  elseif share or not held then
    hand_over(clock())
  end
  remember_end(id, 'g', TOMBSTONE)
  return 'nothing ' .. id .. ' ' .. field(news)
end

local keyed = lease_keyed_is(lease, '1')
local adopted = kept_by(lease) ~= (ARGV[5] or id_token(id))
-- If the recipient knows that it answered the lease to no caller, no earlier caller was answered either.
local again = not ARGV[5] and keyed and lease_answered_is(lease, '1')
-- The message of the grant may be late, and the attempt may have received the grant from the store.
local heard = ARGV[3] == '1' and lease_state_is(lease, 'h')
if adopted or heard or again then
  return 'kept ' .. id .. ' 0:'
end
local replaces = may_replace(id, 'g')
forget_order(lease)
local passed, left = nil, nil
if share then
  left = share.remove(id, lease, us)
else
  passed = hand_over(clock())
end
if replaces then
  redis.call('SET', of, 'g', 'PX', TOMBSTONE)
end
if lease_mode_below(lease, 'a') then
  -- The holder was asked to release the lease, and this release comes in time, so the request is forgotten.
  redis.call('DEL', name .. 'asked:' .. id)
end
if keyed then
  local used = name .. 'key:' .. lease_key(lease)
  if ARGV[3] == '0' then
    redis.call('SET', used, 'l' .. id, 'PX', TOMBSTONE)
  else
    redis.call('DEL', used)
  end
end
if share then
  pass_freed(us, share, left)
elseif passed ~= 'passed' then
  redis.call('DEL', lock)
end
return 'given_back ' .. id .. ' ' .. field(news) .. field(lease_fence(lease))
