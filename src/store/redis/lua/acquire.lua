-- Acquire: grants the lock to an attempt if it is free and nobody is before it; else lets it stand
-- in the queue, if it wants to.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  ended    zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence    string: the fence counter of the slot
--   5  queue    zset: the tickets by their order
--   6  waiters  hash: the record of each ticket
-- ARGV
--   1  the hash of the token, which is the identity of the attempt and its ticket
--   2  ttl in ms
--   3  hold limit in ms, or empty
--   4  owner, or empty
--   5  metadata as JSON, or empty
--   6  the highest fence that the gateway has seen in this slot
--   7  how long to remember an end, in ms
--   8  1 if an earlier copy of this command may still arrive, else 0
--   9  the hash of the idempotency key, or empty
--  10  the fingerprint of the request, or empty
--  11  the salt of the token, or empty
--  12  the id of this gateway
--  13  how long the attempt wants to wait, in ms, or empty
--  14  how many may be queued
-- Reply
--   {granted, ARGV 1, news, fence, ms until the hold limit or -1}
--   {again, ARGV 1, news, lease ..}           this attempt holds the lock already
--   {replayed, ARGV 1, news, lease .., salt}  the lease that lives under the idempotency key
--   {held, ARGV 1, news, contention ..}       somebody else holds it, or will in a moment
--   {queued, ARGV 1, news, how many are before it, contention ..}
--   {full | superseded | mismatch | expired | withdrawn | exhausted, ARGV 1, news}
--   {clock, ARGV 1, news, seconds}            the time is impossible
--   {layout, ARGV 1, news, version}           the record is not of this layout
--   {counter, ARGV 1, news}                   the fence counter is no number
-- Replay
--   The attempt that holds the lock is answered its lease again, the one that is queued its place;
--   an attempt that was given back, whose place was taken over, or whose lease has ended after an
--   earlier copy was outstanding, is refused.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant.
-- Cluster
--   Keys 1 to 3, 5 and 6 carry the name as hash tag, key 4 a tag of the same slot. The keys that
--   say which gateways are alive are not given: they differ from key 4 in their end alone.
-- Cost
--   O(log n) in the number of memories and of tickets of this name, however many wait; and O(d) for
--   d dead tickets at the head, each of which costs this only once.

local at = {
  lock = KEYS[1], info = KEYS[2], ended = KEYS[3], counter = KEYS[4], queue = KEYS[5],
  waiters = KEYS[6], me = ARGV[12], floor = ARGV[6], tombstone = ARGV[7], news = {},
}
local token, key, news = ARGV[1], ARGV[9], at.news

local function read()
  return read_record(at.info, 'idem', 'finger', 'salt', 'provisional', unpack(TOLD))
end

local held = redis.call('GET', at.lock)
local record, layout = nil, false
if held or redis.call('HLEN', at.info) > 0 then
  record, layout = read()
  if layout then
    return { 'layout', token, news, layout }
  end
end
look(at)
local now, us = instants(redis.call('TIME'))

-- Nobody passes those who wait.
if not held and at.head then
  hand_over(at, now, us, record)
  held = redis.call('GET', at.lock)
  at.head = redis.call('ZRANGE', at.queue, 0, 0)[1]
  record = held and read()
end

if held then
  local left = redis.call('PTTL', at.lock)
  local ours = record and record[2] == held and left >= 0
  if ours and held == token then
    if record[6] then
      left = settle(at, token, now)
      record = read()
    else
      redis.call('HDEL', at.info, '')
      redis.call('HSET', at.info, 'heard', '1')
    end
    if ARGV[8] == '1' then
      remember(at.ended, now, digits(left + now + ARGV[7]), 'g:' .. token)
    end
    return tell({ 'again', token, news }, record, 7, left, now)
  end
  if remembers(at.ended, 'g:' .. token, now) then
    return { 'withdrawn', token, news }
  end
  if ours and key ~= '' and record[3] == key then
    if record[4] ~= ARGV[10] then
      return { 'mismatch', token, news }
    end
    -- Its caller may have heard of it: from now on it is not given back, and this attempt keeps it.
    redis.call('HDEL', at.info, 'returnable')
    adopt(at.info, at.ended, held, token, now, digits(now + at.tombstone))
    if record[6] then
      left = settle(at, held, now)
      record = read()
    end
    local reply = tell({ 'replayed', token, news }, record, 7, left, now)
    reply[#reply + 1] = record[5]
    return reply
  end
end
if remembers(at.ended, 'g:' .. token, now) then
  return { 'withdrawn', token, news }
end
if key ~= '' then
  if remembers(at.ended, 's:' .. token, now) then
    return { 'superseded', token, news }
  end
  if remembers(at.ended, 'k:' .. key, now) then
    return { 'expired', token, news }
  end
end
local waiter = {
  gateway = at.me, queued = now, late = ARGV[8], ttl = ARGV[2], hold = ARGV[3], key = key,
  finger = ARGV[10], salt = ARGV[11], owner = ARGV[4], metadata = ARGV[5],
}

if not held then
  local last = redis.call('GET', at.counter)
  local fence, why = next_fence(last, us, at.floor)
  if why == 'clock' then
    return { why, token, news, math.floor(us / 1000000) }
  elseif why then
    return { why, token, news }
  end
  if not at.head then
    -- Nothing was written so far, but for dead tickets that were cleared away.
    if record then
      redis.call('DEL', at.info)
    end
    local until_limit = grant(at, token, waiter, fence, now)
    return { 'granted', token, news, fence, until_limit }
  end
end

-- Under its key there may be a place already: it is taken over, or given up by who does not wait.
local order, before
if at.head and (key ~= '' or ARGV[13] ~= '') then
  order = redis.call('ZSCORE', at.queue, token)
  local mine = order and read_waiter(redis.call('HMGET', at.waiters, token)[1])
  if mine then
    waiter.queued = mine.queued
    waiter.late = mine.late == '1' and '1' or ARGV[8]
  end
  before = key ~= '' and redis.call('HMGET', at.waiters, 'k:' .. key)[1]
end
if before and before ~= token then
  local old, later = read_waiter(redis.call('HMGET', at.waiters, before)[1])
  if later or (old and old.finger ~= ARGV[10]) then
    return { 'mismatch', token, news }
  end
  order = redis.call('ZSCORE', at.queue, before)
  waiter.queued = old and old.queued or now
  -- The newest request owns the place. The one before it must not come back for it.
  take_out(at, { before }, { 'k:' .. key })
  if old and (old.gateway ~= '' or old.late == '1') then
    remember(at.ended, now, digits(now + ARGV[7]), 's:' .. before)
  end
  if old and old.gateway == at.me then
    news[#news + 1] = { 'superseded', before }
  elseif old and old.gateway ~= '' then
    send(at, old.gateway, 'superseded', before)
  end
end
if ARGV[13] == '' then
  return contend({ 'held', token, news }, at, now)
end
if not order then
  if at.head and redis.call('ZCARD', at.queue) >= tonumber(ARGV[14]) then
    return { 'full', token, news }
  end
  -- In the order of asking, whichever gateway was asked.
  local last = redis.call('ZRANGE', at.queue, -1, -1, 'WITHSCORES')
  order = digits(math.max(us, last[2] and last[2] + 1 or 0))
end
waiter.ends = now + ARGV[13] + SLACK
redis.call('ZADD', at.queue, order, token)
redis.call('HSET', at.waiters, token, write_waiter(waiter))
if key ~= '' then
  redis.call('HSET', at.waiters, 'k:' .. key, token)
end
redis.call('SET', alive_key(at, at.me), '1', 'PX', ALIVE)
outlive(at, now, waiter.ends)
return contend({ 'queued', token, news, redis.call('ZRANK', at.queue, token) }, at, now)
