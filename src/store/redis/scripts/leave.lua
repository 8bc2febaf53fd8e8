#!lua flags=allow-oom
-- Leave: takes an attempt out of the queue, or keeps its place for a request that asks again.
--
-- KEYS
--   1  lock   string: the lease, or what a foreign client has written
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  how long to keep the place, in ms, or empty
-- Reply
--   left ARGV 1: news, contention ..
--   granted ARGV 1: news, lease, time  it holds the lock, for its full TTL from now
--   superseded ARGV 1: news            a newer request with its idempotency key has its place, or keeps
--                                      its lease
-- Replay
--   Has left already; a place that is kept is kept from then, and what it was granted lasts no longer.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   O(n) in the number of those who wait before it, up to LONG. Where more wait, the id stays in the queue as
--   that of a dead ticket: O(1), and O(n) when a quarter of the queue has left so, for at most MOST_SWEPT places.
--   To keep a place is O(n).

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
-- import sweep
-- import grant_ttl
-- import contention

-- From how many on it costs too much to look for an id in the queue.
local LONG = 512

local held, us = redis.call('GET', lock), clock()
local share = is_shared(held) and sharing()
local sharers = share and share.prune(us)
if sharers == 0 then
  held, share = nil, nil
end
if share then
  redis.call('GET', of)
  admit(us, share, sharers)
elseif not held then
  -- A ticket of another type ends the script before the lock passes on.
  redis.call('GET', of)
  -- It may be the head itself, in the last moment.
  local passed = hand_over(redis.call('LPOP', wait), us)
  if type(passed) == 'table' then
    return passed
  elseif passed == 'passed' then
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
    -- An earlier copy had the place kept: what it is granted belongs to whoever comes back.
    return 'left ' .. id .. ' ' .. field(news) .. contention(redis.call('LLEN', wait), held, us, SHOWN_HOLDERS)
  elseif kept_by(lease) ~= id_token(id) then
    return 'superseded ' .. id .. ' ' .. field(news)
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
  return 'superseded ' .. id .. ' ' .. field(news)
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
    -- Who leave together have come together: most of them stood around this one.
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
    -- A copy of its acquire that is still on its way must not queue it again. If its place was lost, so
    -- was whether there is one.
    remember_end(id, 'g', TOMBSTONE)
  end
  count = stood and count - 1 or count
  if count <= LONG and redis.call('DEL', gone) == 1 and is_possible(us) then
    count = count - sweep(0, LONG, us, stands)
  end
end
if share then
  -- It may have been the head, and kept those behind it from sharing the lock.
  admit(us, share, share.count())
  held, count = redis.call('GET', lock), redis.call('LLEN', wait)
end
return 'left ' .. id .. ' ' .. field(news) .. contention(math.max(0, count - left), held, us, SHOWN_HOLDERS)
