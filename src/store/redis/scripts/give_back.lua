#!lua flags=allow-oom
-- Give back: makes sure that an attempt which nobody waits for any more holds nothing, and passes
-- on what it held.
--
-- KEYS
--   1  lock   string: the lease, or what a foreign client has written
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  1 to give back only what was not delivered, 2 for a grant that was kept back, or taken for a
--      group and answered to nobody, 3 for what this server has of an attempt that ended on another one, else 0.
--      Only with 0 its idempotency key counts as used
--   4  the fence of the grant that is meant, in 16 digits, or empty for whatever the attempt holds; with 3 a place
--      of the attempt at this gateway is meant, too
--   5  who knows as its keeper that it was answered to nobody, or nothing
-- Reply
--   given_back ARGV 1: news, fence  that of the lease, in 16 digits
--   kept ARGV 1: news     its lease was adopted or answered again under its idempotency key, or was
--                         delivered after all
--   nothing ARGV 1: news  it holds nothing, and never will; or the grant that is meant is over
-- Replay
--   The attempt is refused for as long as its end is remembered, however late a copy of its acquire
--   arrives.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire; O(n) in the number of those who wait if the attempt is one of them.

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
-- import hand_over

local held = redis.call('GET', lock)
local lease, share, us = is_lease(held) and lease_id(held) == id and held, is_shared(held) and sharing(), nil
if share then
  us = clock()
  lease = share.find(id, us)
end
local meant = lease and lease_fence(lease) == ARGV[4] or ARGV[4] == '' and ARGV[3] ~= '3'
if ARGV[3] == '3' and not meant then
  -- The token of a group may be used again, through another gateway.
  local body = redis.call('GET', of)
  meant = is_ticket(body) and ticket_gateway(body) == me
end
if not meant then
  -- Its attempt may have asked again since, and have been granted it anew.
  return 'nothing ' .. id .. ' 0:'
end

if not lease then
  local body = redis.call('GET', of)
  if is_ticket(body) then
    -- It may be the head itself, and must not be granted what it gives up.
    if is_queued(body) then
      redis.call('LREM', wait, '1', id)
    end
    bury(id, body)
  end
  local passed = nil
  local count = share and share.prune(us) or 0
  if count > 0 then
    passed = admit(us, share, count)
  elseif share or not held then
    passed = hand_over(redis.call('LPOP', wait), try_clock())
  end
  remember_end(id, 'g', TOMBSTONE)
  return type(passed) == 'table' and passed or 'nothing ' .. id .. ' ' .. field(news)
end

local keyed = lease_keyed_is(lease, '1')
local adopted = kept_by(lease) ~= (ARGV[5] or id_token(id))
-- What its keeper has taken over was answered to nobody before it either.
local again = not ARGV[5] and keyed and lease_answered_is(lease, '1')
-- The message of the grant may be late, and its attempt have been answered otherwise.
local heard = ARGV[3] == '1' and lease_state_is(lease, 'h')
if adopted or heard or again then
  return 'kept ' .. id .. ' 0:'
end
local replaces = may_replace(id, 'g')
local passed, left = nil, nil
if share then
  left = share.remove(id, lease, us)
else
  passed = hand_over(redis.call('LPOP', wait), try_clock())
end
if type(passed) == 'table' then
  return passed
end
-- The lock goes last: stopped half-way, it is still held and can be given back again. If it has passed on, nothing may
-- raise here.
if replaces then
  redis.call('SET', of, 'g', 'PX', TOMBSTONE)
end
if lease_mode_below(lease, 'a') then
  -- Its holder was asked to release it, and this comes in time.
  redis.pcall('DEL', name .. 'asked:' .. id)
end
if keyed then
  local used = name .. 'key:' .. lease_key(lease)
  if ARGV[3] == '0' then
    redis.call('SET', used, 'l' .. id, 'PX', TOMBSTONE)
  else
    redis.pcall('DEL', used)
  end
end
if share then
  pass_freed(us, share, left)
elseif passed ~= 'passed' then
  redis.call('DEL', lock)
end
return 'given_back ' .. id .. ' ' .. field(news) .. field(lease_fence(lease))
