#!lua flags=allow-oom
-- Advance: passes a lock that nobody holds to the head of its queue.
--
-- KEYS
--   1  lock   string: the lease, or what a foreign client has written
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
-- Reply
--   held KEYS 1: news, when to look again in ms  somebody holds it; -1: for ever
--   passed KEYS 1: news                          it was free, and somebody was queued
--   idle KEYS 1: news                            it is free, and nobody is queued who is alive
--   exhausted KEYS 1: news                       there is no fence any more
--   clock KEYS 1: news, seconds                  the time is impossible
--   counter KEYS 1: news                         the fence counter is no number
-- Replay
--   Somebody holds it by then.
-- Clock
--   TIME of this Redis, only where the lock is free.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, counter, floor, news = KEYS[1], KEYS[2], ARGV[1], ''
local name, me = string.sub(lock, 1, -5), string.sub(ARGV[1], 17)
local wait = name .. 'wait'

-- How often a grant is looked after that is not confirmed yet.
local OFTEN = 500

local held, left = redis.call('GETRANGE', lock, '0', '134'), redis.call('PTTL', lock)

-- import field

if left ~= -2 then
  local state = string.byte(held, 66)
  if string.byte(held) == 50 and (state == 112 or state == 107) then
    -- Confirmed, it ends sooner than it does by itself if its TTL is short, and nobody is told.
    left = math.min(left, math.max(OFTEN, tonumber(string.sub(held, 119, 126)) or OFTEN))
  end
  return 'held ' .. lock .. ' 0:' .. field(left)
end
local first = redis.call('LINDEX', wait, '0')
if not first then
  return 'idle ' .. lock .. ' 0:'
end

-- import clock
-- import fence
-- import lease
-- import send
-- import gateways
-- import hand_over

local us = clock()
local passed, why = hand_over(first, us)
if type(passed) == 'table' then
  return passed
elseif passed == 'stays' then
  return why .. ' ' .. lock .. ' ' .. field(news) .. (why == 'clock' and field(string.sub(us, 1, -7)) or '')
end
return (passed == 'nobody' and 'idle ' or 'passed ') .. lock .. ' ' .. field(news)
