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
--   {replayed, ARGV 1, news, lease .., salt, keeper}
--                                             the lease that lives under the idempotency key, and who kept
--                                             it until now
--   {collected, ARGV 1, news, lease .., salt, keeper}
--                                             the same, and nobody has heard of it before
--   {held, ARGV 1, news, contention ..}       somebody else holds it, or will in a moment
--   {queued, ARGV 1, news, how many are before it, contention ..}
--   {superseded, ARGV 1, news}                a newer request with its key has its place, or keeps its
--                                             lease
--   {full | mismatch | expired | withdrawn | exhausted, ARGV 1, news}
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
--   d dead tickets at the head, each of which costs this only once. Of a full queue a bounded part is
--   looked through for dead tickets.

local lock, info, ended, counter, queue, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, key, news = ARGV[1], ARGV[9], {}
local floor, tombstone, me = ARGV[6], ARGV[7], ARGV[12]
local waiter = {
  gateway = me, late = ARGV[8], ttl = ARGV[2], hold = ARGV[3], key = key, finger = ARGV[10],
  salt = ARGV[11], owner = ARGV[4], metadata = ARGV[5],
}

-- import time
-- import record
-- import memory
-- import grant

-- Answers without having written, and is yet refused by a server that takes no writes: a replica
-- does not know who holds the lock now. (The flags of the other scripts would refuse more than that:
-- out of memory, a lease that lives could not be answered again.)
local function refuse(...)
  redis.call('ZREM', ended, '')
  return { ... }
end

local now, us = instants(redis.call('TIME'))

local function refuse_fence(why)
  if why == 'clock' then
    return refuse(why, token, news, math.floor(us / 1000000))
  end
  return refuse(why, token, news)
end

-- Nobody holds the lock, and nobody stands before the attempt.
local function take(stale)
  local fence, why = next_fence(redis.call('GET', counter), us, floor)
  if not fence then
    return refuse_fence(why)
  end
  if stale then
    redis.call('DEL', info)
  end
  return { 'granted', token, news, fence, grant(token, waiter, fence, now, false) }
end

-- What most attempts find is nothing, and then no key can be of another type either. Who wants to
-- wait often has a reason.
local held = ARGV[13] ~= '' and redis.call('GET', lock)
if not held and redis.call('EXISTS', lock, info, ended, queue, waiters) == 0 then
  return take(false)
end

-- import tell
-- import settle
-- import keeper
-- import adopt
-- import waiter
-- import send
-- import gateways
-- import hand_over
-- import mark
-- import contend

local left, record, layout

local function read()
  left = held and redis.call('PTTL', lock)
  if key == '' then
    record, layout = read_record(
      info, 'fence', 'ttl', 'acquired', 'hold', 'owner', 'metadata', 'provisional'
    )
  else
    record, layout = read_record(
      info, 'fence', 'ttl', 'acquired', 'hold', 'owner', 'metadata', 'provisional', 'idem',
      'finger', 'salt'
    )
  end
end

held = held or redis.call('GET', lock)
read()
if layout then
  return refuse('layout', token, news, layout)
end
-- Nobody passes those who wait.
if not held then
  look(redis.call('ZRANGE', queue, 0, 1), now)
  if head then
    hand_over(now, us, record)
    held = redis.call('GET', lock)
    read()
  end
end

local ours = held and left >= 0 and record and record[2] == held and record
if ours and held == token then
  -- Under its key a newer request may have been answered the lease meanwhile, and keeps it.
  if key ~= '' and keeper_of(token) ~= token then
    return refuse('superseded', token, news)
  end
  if ours[9] then
    left = settle(token, now)
    read()
  end
  if ARGV[8] == '1' then
    remember(ended, now, left + now + tombstone, 'g:' .. token)
  end
  redis.call('HDEL', info, 'unheard')
  return tell({ 'again', token, news }, record, 3, left, now)
end
if remembers(ended, 'g:' .. token, now) then
  return refuse('withdrawn', token, news)
end
if key ~= '' then
  if ours and ours[10] == key then
    if ours[11] ~= ARGV[10] then
      return refuse('mismatch', token, news)
    end
    -- Its caller may have heard of it: from now on it is not given back, and this attempt keeps it;
    -- unless it did before, and a newer one does now.
    local before = keeper_of(held)
    redis.call('HDEL', info, 'returnable')
    if not adopt(held, token, now, now + tombstone) then
      return refuse('superseded', token, news)
    end
    local unheard = ours[9]
    if unheard then
      left = settle(held, now)
      read()
    end
    local kind = unheard and 'collected' or 'replayed'
    local reply = tell({ kind, token, news }, record, 3, left, now)
    reply[#reply + 1] = record[12]
    reply[#reply + 1] = before
    return reply
  end
  if remembers(ended, 's:' .. token, now) then
    return refuse('superseded', token, news)
  end
  if remembers(ended, 'k:' .. key, now) then
    return refuse('expired', token, news)
  end
end

local back = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
if not held then
  if not back[1] then
    -- Nothing was written so far, but for dead tickets that were cleared away.
    return take(record)
  end
  local fence, why = next_fence(last, us, floor)
  if not fence then
    return refuse_fence(why)
  end
end

local count = redis.call('ZCARD', queue)
if ARGV[13] == '' and (key == '' or count == 0) then
  return tell_contention(refuse('held', token, news), count, held, left, ours, 3, now)
end

-- Under its key there may be a place already: it is taken over, or given up by who does not wait.
local found = redis.call('HMGET', waiters, token, 'k:' .. key)
local mine, before = read_waiter(found[1]), found[2]
local order = mine and redis.call('ZSCORE', queue, token)
waiter.queued = now
if order then
  waiter.queued = mine.queued
  waiter.late = mine.late == '1' and '1' or ARGV[8]
end
if before and before ~= token then
  local old, later = read_waiter(redis.call('HMGET', waiters, before)[1])
  if later or (old and old.finger ~= ARGV[10]) then
    return refuse('mismatch', token, news)
  end
  order = redis.call('ZSCORE', queue, before)
  waiter.queued = old and old.queued or now
  -- The newest request owns the place. The one before it must not come back for it.
  take_out({ before }, { 'k:' .. key })
  if old and (old.gateway ~= '' or old.late == '1') then
    remember(ended, now, now + tombstone, 's:' .. before)
  end
  if old and old.gateway == me then
    news[#news + 1] = { 'superseded', before }
  elseif old and old.gateway ~= '' then
    send(old.gateway, 'superseded', before)
  end
end
if ARGV[13] == '' then
  count = redis.call('ZCARD', queue)
  return tell_contention(refuse('held', token, news), count, held, left, ours, 3, now)
end
local ahead
if not order then
  if count > 0 and count >= tonumber(ARGV[14]) then
    count = count - clear_away(count, now, us)
    if count >= tonumber(ARGV[14]) then
      return refuse('full', token, news)
    end
  end
  -- In the order of asking, whichever gateway was asked.
  order = back[2] and back[2] + 1 or 1
  ahead, count = count, count + 1
end
waiter.ends = now + ARGV[13] + SLACK
redis.call('ZADD', queue, order, token)
if key == '' then
  redis.call('HSET', waiters, token, write_waiter(waiter))
else
  redis.call('HSET', waiters, token, write_waiter(waiter), 'k:' .. key, token)
end
if redis.call('PEXPIRE', alive_key(me), ALIVE) == 0 then
  -- If others have waited here already, they may have been taken for dead: they must ask again.
  redis.call('SET', alive_key(me), '1', 'PX', ALIVE)
  news[#news + 1] = { 'lapsed' }
end
outlive(now, waiter.ends)
ahead = ahead or redis.call('ZRANK', queue, token)
return tell_contention({ 'queued', token, news, ahead }, count, held, left, ours, 3, now)
