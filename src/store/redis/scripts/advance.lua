#!lua flags=allow-oom
-- Advance: passes a free lock to the head of its queue, and a shared lock to the waiters that may share it.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
-- Reply
--   held KEYS 1: news, when to look again in ms  the lock is held; -1: without an expiry
--   passed KEYS 1: news                          the lock was free and passed to a waiter, or dead tickets are left
--   idle KEYS 1: news                            the lock is free, and no living waiter is queued
--   exhausted KEYS 1: news                       all fences are used up
--   clock KEYS 1: news, seconds                  no fence can be made from the time
--   counter KEYS 1: news                         the fence counter is no number
-- Replay
--   Does nothing more: the lock is held by then.
-- Clock
--   TIME of this Redis, only where the lock is free or shared.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, counter, floor, news = KEYS[1], KEYS[2], ARGV[1], ''
local name, me = string.sub(lock, 1, -5), floor_gateway(ARGV[1])
local wait = name .. 'wait'

-- How soon the gateway looks again at a grant that is not confirmed yet, in ms, at least.
local OFTEN = 500

local held, left = redis.call('GETRANGE', lock, lease_range('id', 'hold_limit')), redis.call('PTTL', lock)

-- import clock
-- import fence
-- import field
-- import lease
-- import shared
-- import send
-- import gateways
-- import order
-- import hand_over

local function answer(passed, why, us)
  if passed == 'stays' then
    return why .. ' ' .. lock .. ' ' .. field(news) .. (why == 'clock' and field(string.sub(us, 1, -7)) or '')
  end
  return (passed == 'nobody' and 'idle ' or 'passed ') .. lock .. ' ' .. field(news)
end

if is_shared(held) then
  local us, share = clock(), sharing()
  local count = share.prune(us)
  if count > 0 then
    local passed, why = hand_over(us, share, count)
    if passed == 'stays' then
      return answer(passed, why, us)
    end
    -- Reports provisional grants of waiters at this gateway, because the message of a grant may be lost.
    local soon = string.format('%.0f', us + PROVISIONAL * 1000)
    for _, lease in ipairs(share.ending(us, soon, MOST_GRANTS)) do
      local of = name .. 'of:' .. lease_id(lease)
      if lease_state_is(lease, 'p') and redis.call('GETRANGE', of, ticket_range('gateway')) == me then
        news = news .. field('11:provisional64:' .. id_token(lease))
      end
    end
    return 'held ' .. lock .. ' ' .. field(news) .. field(share.next_look(us))
  end
  left = -2
end
if left ~= -2 then
  if id_version_is(held, '2') and is_untold(held) then
    -- If its TTL is short, the lease may end sooner once it is confirmed, and no message tells this gateway of that.
    left = math.min(left, math.max(OFTEN, tonumber(lease_ttl(held)) or OFTEN))
  end
  return 'held ' .. lock .. ' 0:' .. field(left)
end
if not redis.call('LINDEX', wait, '0') then
  return 'idle ' .. lock .. ' 0:'
end
local us = clock()
local passed, why = hand_over(us)
return answer(passed, why, us)
