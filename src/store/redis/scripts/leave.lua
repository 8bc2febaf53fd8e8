#!lua flags=allow-oom
-- Leave: takes an attempt out of the queue, or keeps its position for a later request with the same idempotency key.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  how long to keep the position, in ms, or empty
-- Reply
--   left ARGV 1: news, contention ..
--   granted ARGV 1: news, lease, time  the attempt holds the lock, for its full TTL from now
--   replaced ARGV 1: news            a newer request with the same idempotency key has the position, or keeps
--                                      the lease
--   newer ARGV 1: news                 a newer waiter has taken the attempt out of the queue
-- Replay
--   The attempt has left already. The time of a kept position begins again, and a grant does not last longer.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   O(n) in the number of waiters before the attempt, in a queue of up to LONG waiters. In a longer queue, the id stays
--   as the id of a dead ticket: O(1). When a quarter of the queue has left so, O(n) for at most MOST_SWEPT positions.
--   To keep a position is O(n). Besides, O(m) for the m leases that share the lock.

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
-- import sweep
-- import grant_ttl
-- import settle_lease
-- import contention

local held, us = redis.call('GET', lock), clock()
local share = is_shared(held) and sharing()
local sharers = share and share.prune(us)
if sharers == 0 then
  held, share = nil, nil
end
if share then
  redis.call('GET', of)
  hand_over(us, share, sharers)
elseif not held then
  -- A key of another type in place of the ticket ends the script here, before the lock passes on.
  redis.call('GET', of)
  -- The attempt may be the head of the queue, and is granted the lock at the last moment.
  if hand_over(us) == 'passed' then
    held = redis.call('GET', lock)
    share = is_shared(held) and sharing()
  end
end
local lease = is_lease(held) and lease_id(held) == id and held
if share then
  lease = share.find(id, us)
end
if lease then
  if lease_state_is(lease, 'k') then
    -- An earlier copy of this command kept the position: its grant belongs to the caller that comes back.
    return 'left ' .. id .. ' ' .. field(news) .. contention(redis.call('LLEN', wait), held, us, SHOWN_HOLDERS)
  elseif kept_by(lease) ~= id_token(id) then
    return 'replaced ' .. id .. ' ' .. field(news)
  end
  lease = settle_lease(lease, us, share)
  if lease then
    return 'granted ' .. id .. ' ' .. field(news) .. field(lease) .. field(us)
  end
  held = redis.call('GET', lock)
  share = is_shared(held) and share
end

local body, count, left = redis.call('GET', of), redis.call('LLEN', wait), 0
if body == 's' or body == 'a' then
  return 'replaced ' .. id .. ' ' .. field(news)
elseif body == 'n' then
  return 'newer ' .. id .. ' ' .. field(news)
elseif is_queued(body) and ARGV[3] ~= '' and ticket_keyed_is(body, '1')
  and owns_key(id, body) and redis.call('LPOS', wait, id)
then
  local ends = string.format('%016.0f', us + ARGV[3] * 1000)
  local kept = ticket_with(body, { state = 'q', gateway = NO_GATEWAY, ends = ends })
  redis.call('SET', of, kept, 'PX', ARGV[3] + TOMBSTONE)
  redis.call('SET', name .. 'key:' .. ticket_key(body), 'q' .. id, 'PX', ARGV[3] + TOMBSTONE)
elseif is_queued(body) and count > LONG then
  left = left_before() + 1
  redis.call('DEL', of)
  bury(id, body)
  remember_end(id, 'g', TOMBSTONE)
  if left * 4 > count and is_possible(us) then
    -- Waiters that leave together mostly came together, so their tickets are near the ticket of this attempt.
    local dead
    dead, left = sweep_left(left, count, redis.call('LPOS', wait, id) or 0, us)
    count = count - dead
  end
  remember_left(left)
else
  local stood = is_queued(body) and redis.call('LREM', wait, '1', id) == 1
  if is_ticket(body) then
    bury(id, body)
  end
  if stood and not ticket_late_is(body, '1') then
    redis.call('DEL', of)
  else
    -- Without the letter `g` in `:of:ID`, a late copy of the acquire would queue the attempt again. If the ticket was
    -- lost, it is unknown whether such a copy is outstanding.
    remember_end(id, 'g', TOMBSTONE)
  end
  count = stood and count - 1 or count
  if count <= LONG and redis.call('DEL', gone) == 1 and is_possible(us) then
    count = count - sweep(0, LONG, us, stands)
  end
end
if share then
  -- The attempt may have been the head, and have kept the waiters behind it from sharing the lock.
  hand_over(us, share, share.count())
  held, count = redis.call('GET', lock), redis.call('LLEN', wait)
end
return 'left ' .. id .. ' ' .. field(news) .. contention(math.max(0, count - left), held, us, SHOWN_HOLDERS)
