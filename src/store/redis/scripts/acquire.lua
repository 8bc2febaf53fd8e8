-- Acquire: grants the lock to an attempt if the lock is free and no waiter is before the attempt; else queues the
-- attempt, if it waits.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
--   Also used, with names made from the first: `wait` (list: the ids of the waiters), `of:ID` (string: the ticket of an
--   attempt, or a letter that says how the attempt ended), `key:HASH` (string: the attempt or lease of an idempotency
--   key), `newest:HASH` (string: the newest waiter with a key of `supersedes`), `asked:ID` (string: when a release
--   request for a lease is due), and the keys of a shared lock (`parts/shared.lua`).
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  how long the lease lasts, in ms: the least of its TTL and its hold limit; of a reservation its end, as a
--      time in ms
--   3  the terms of the lease: TTL, hold limit, .. as `records/packed.rs` packs them
--   4  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   5  the hash of the idempotency key, or empty, or nothing (and nothing follows)
--   6  empty or nothing: exclusive, does not wait, and no earlier copy of this command may arrive. Else one byte each
--      for the mode, whether there is a key, '0', and whether an earlier copy may arrive; then four for the limit
--   7  how long the attempt wants to wait, in ms, or empty, or nothing
--   8  how many waiters the queue may have, or nothing if the attempt does not wait
--   9  the liveness key of this gateway, if the script must extend it
--  10  the hash of the key of `supersedes`, or nothing
-- Reply
--   granted ARGV 1: news, fence, slot if it has one; of a reservation how long it lasts, in ms
--   again ARGV 1: news, lease, time           this attempt already holds the lock
--   replayed ARGV 1: news, lease, time, waited
--                                             the lease that lives under the idempotency key
--   collected ARGV 1: news, lease, time, waited
--                                             as replayed, but no caller was answered this lease before; how long its
--                                             position was queued, in us
--   held ARGV 1: news, contention ..          another attempt holds the lock, or will in a moment
--   queued ARGV 1: news, waiters before the attempt, how long its position has been queued in us, contention ..
--   superseded ARGV 1: news                   a newer request with the same key has the position or keeps the lease;
--                                             or the attempt has left, and its position is kept
--   newer ARGV 1: news                        a newer waiter took this attempt, or one with its key, out of the queue
--   over ARGV 1: news                         the end of the reservation has come
--   full | mismatch | expired | withdrawn | exhausted ARGV 1: news
--   clock ARGV 1: news, seconds               no fence can be made from the time
--   counter ARGV 1: news                      the fence counter is no number
-- Replay
--   The attempt that holds the lock is answered its lease again, a queued attempt its position. An attempt is
--   refused if it was given back, if its position was taken over or is kept, if a newer waiter took it out of the
--   queue, or if its lease has ended while an earlier copy was outstanding.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   Key 1 has the name as hash tag, and so have the keys made from it; key 2 has a tag of the same slot.
--   The liveness keys of gateways differ from key 2 only in their end.
-- Cost
--   O(1). O(n) in the number of waiters if a position is taken over or asked for again. O(d) for d dead tickets at
--   the head, once for each ticket. In a full queue, a bounded part is searched for dead tickets. O(m) for the m leases
--   that share the lock, if they refuse an attempt that does not wait.

local lock, id, key, place = KEYS[1], ARGV[1], ARGV[5] or '', ARGV[6] or ''
local name = string.sub(lock, 1, -5)
local wait, of, used = name .. 'wait', name .. 'of:' .. id, key ~= '' and name .. 'key:' .. key
local counter, floor = KEYS[2], ARGV[4]

-- import clock
-- import fence

-- The longest TTL, in ms. A number that is larger is the end of a reservation.
local LONGEST_TTL = 86400000

local take_shared

-- Grants the lock to the attempt. Before the call, the script has checked that no waiter is before the attempt, and
-- that the lock is free or may be shared with its holders.
local function take(us)
  local lasts, told = ARGV[2], ''
  if tonumber(lasts) > LONGEST_TTL then
    lasts = lasts - math.floor(us / 1000)
    if lasts <= 0 then
      redis.call('DEL', name .. 'absent')
      return 'over ' .. id .. ' 0:'
    end
    told = string.format('%.0f', lasts)
    told = #told .. ':' .. told
  end
  local fence, why = draw(us)
  if why then
    redis.call('DEL', name .. 'absent')
    return why .. ' ' .. id .. ' 0:' .. (why == 'clock' and #us - 6 .. ':' .. string.sub(us, 1, -7) or '')
  end
  local marks = used and 'x100' or 'x000'
  if place ~= '' then
    marks = place_span(place, 'mode', 'late')
  end
  local ends = string.format('%016.0f', us + lasts * 1000)
  local lease = id .. 'h' .. marks .. fence .. us .. ends .. ARGV[3]
  local taken = take_shared and take_shared(lease, us)
  if used then
    redis.call('SET', used, 'l' .. id, 'PX', lasts + TOMBSTONE)
  end
  if place_late_is(marks, '1') then
    redis.call('SET', of, 'g', 'PX', lasts + TOMBSTONE)
  end
  if taken then
    return taken
  end
  redis.call('SET', lock, lease, 'PX', lasts)
  return 'granted ' .. id .. ' 0:16:' .. fence .. told
end

-- Most attempts find no key, and a key that does not exist cannot have another type.
if place == '' and redis.call('EXISTS', lock, wait, of, used or of) == 0 then
  return take(clock())
end
local seen = redis.call('MGET', lock, of, used or of)
local held, became, whose = seen[1], seen[2], used and seen[3]
-- `x` in the argument: the attempt is exclusive.
local alone = place == '' or place_mode_is(place, 'x')
if alone and not (held or became or whose) and redis.call('EXISTS', lock, wait) == 0 then
  return take(clock())
end

local me, news = floor_gateway(ARGV[4]), ''
local late, waits = place_late_is(place, '1'), ARGV[7] and tonumber(ARGV[7])
local newest = ARGV[10] and name .. 'newest:' .. ARGV[10]

-- import field
-- import lease
-- import shared
-- import contention

-- Writes the ticket of an attempt whose id is in the queue, and answers `queued`. `pass_on`: passes the lock on after the
-- ticket is written.
local function stand(us, queued, count, ahead, pass_on)
  -- With an idempotency key, the ticket counts a little longer than the wait, because the gateway still sends a `leave`
  -- that keeps the position, perhaps twice. Without a key the ticket ends with the wait, even on a replica that has not
  -- received its deletion.
  local ends = string.format('%016.0f', us + (used and waits + 5000 or waits) * 1000)
  local copies = late and '1' or '0'
  local marks = place_with(place, { late = copies })
  redis.call('SET', of, 'q' .. me .. marks .. queued .. ends .. ARGV[3], 'PX', waits + 65000)
  if used then
    redis.call('SET', used, 'q' .. id, 'PX', waits + 65000)
  end
  if newest then
    redis.call('SET', newest, id, 'PX', waits + 65000)
  end
  if ARGV[9] and redis.call('PEXPIRE', ARGV[9], '6000') == 0 then
    -- The liveness key of this gateway was missing. If the gateway had waiters in this slot before, other scripts may
    -- have removed them as dead, so these waiters must ask again.
    redis.call('SET', ARGV[9], '1', 'PX', '6000')
    news = news .. '8:6:lapsed'
  end
  if pass_on then
    pass_on()
  end
  local waited = string.format('%.0f', math.max(0, us - queued))
  return 'queued ' .. id .. ' ' .. field(news) .. field(ahead) .. field(waited) .. contention(count, held, us, '0')
end

-- Most waiters find a lock that another attempt holds exclusively, and no record of their own.
if held and waits and not (became or used or newest) and lease_id(held) ~= id and not is_shared(held) then
  local count = redis.call('RPUSH', wait, id)
  if count <= tonumber(ARGV[8]) then
    if count == 1 then
      redis.call('PEXPIRE', wait, QUEUE_LASTS)
    end
    local us = clock()
    return stand(us, us, count, count - 1)
  end
  redis.call('RPOP', wait)
end

-- import attempt_marks
-- import send
-- import gateways
-- import hand_over
-- import sweep
-- import grant_ttl

-- Answers an attempt that is neither granted the lock nor queued. The DEL is a write, so that a server that takes no
-- writes refuses the script: a replica does not know who holds the lock now. (The flags of the other scripts would also
-- refuse this script when memory is short: a living lease could then not be answered again. After a first write, Redis
-- no longer refuses for want of memory.)
local function refuse(kind, more)
  redis.call('DEL', name .. 'absent')
  return kind .. ' ' .. id .. ' ' .. field(news) .. (more or '')
end

local us = clock()
local share = is_shared(held) and sharing()
local sharers = share and share.prune(us)
if sharers == 0 then
  held, share = nil, nil
end
-- Earlier waiters come first. MGET reads a key of another type as nothing, so GET ends the script here for such a key.
local passed, why = nil, nil
if share then
  passed, why = hand_over(us, share, sharers)
elseif not held and not redis.call('GET', lock) then
  local head = redis.call('LINDEX', wait, '0')
  if head then
    -- After a first write, Redis no longer refuses the script when memory is short: the waiter is granted the lock.
    redis.call('DEL', name .. 'absent')
    passed, why = hand_over(us, nil, 0, head)
  end
end
if passed then
  if passed == 'stays' then
    return refuse(why, why == 'clock' and field(string.sub(us, 1, -7)))
  end
  seen = redis.call('MGET', lock, of, used or of)
  held, became, whose = seen[1], seen[2], used and seen[3]
  share = is_shared(held) and sharing()
end

-- A kept position means that the attempt has left. A grant for this position belongs to the caller that comes back.
if is_ticket(became) and ticket_gateway(became) == NO_GATEWAY then
  return refuse('superseded')
end
local lease = is_lease(held) and held
if share then
  lease = share.find(id, us)
end
if lease and lease_id(lease) == id then
  -- A newer request with the same idempotency key may have been answered the lease meanwhile, and keeps it.
  if used and kept_by(lease) ~= id_token(id) then
    return refuse('superseded')
  end
  redis.call('DEL', name .. 'absent')
  lease = settle_lease(lease, us, share)
  if lease and late then
    local left = math.max(0, math.floor((lease_ends(lease) - us) / 1000))
    redis.call('SET', of, 'g', 'PX', left + TOMBSTONE)
  end
  if lease then
    return 'again ' .. id .. ' ' .. field(news) .. field(lease) .. field(us)
  end
  held = redis.call('GET', lock)
  share = is_shared(held) and share
end
local letter = became and string.sub(became, 1, 1)
if letter == 'n' or (whose and owner_kind_is(whose, 'n')) then
  return refuse('newer')
elseif letter == 'g' or letter == 'b' or (letter == 'r' and not used) then
  return refuse('withdrawn')
elseif letter == 'a' or letter == 's' then
  return refuse('superseded')
end
-- The idempotency key is first compared with the key of the lease. If the lock is shared, this is the lease to which
-- the idempotency key leads.
if share then
  lease = whose and share.find(owner_id(whose), us)
end
if lease and used and lease_keyed_is(lease, '1') and lease_key(lease) == key then
  if lease_fingerprint(lease) ~= packed_fingerprint(ARGV[3]) then
    return refuse('mismatch')
  end
  redis.call('DEL', name .. 'absent')
  -- No caller has been told about this lease yet, except possibly this attempt, whose answer may have been lost.
  local before, replaces, ticket, waited = kept_by(lease), false, nil, '0'
  if before ~= id_token(id) then
    replaces, ticket = may_replace('2' .. before, 'a')
  end
  if is_ticket(ticket) then
    waited = string.format('%.0f', math.max(0, us - ticket_since(ticket)))
  end
  local first = is_untold(lease) or (lease_answered_is(lease, '2') and before == id_token(id))
  local kind = first and 'collected ' or 'replayed '
  lease = settle_lease(lease, us, share)
  if lease then
    local left = math.max(0, math.floor((lease_ends(lease) - us) / 1000))
    if replaces then
      redis.call('SET', name .. 'of:2' .. before, 'a', 'PX', left + TOMBSTONE)
    end
    -- The lease may be delivered by this answer. So it is no longer given back, and this attempt is its keeper.
    local answered, keeper = first and '2' or '1', id_token(id)
    lease = lease_with(lease, { answered = answered, keeper = keeper })
    if share then
      share.rewrite(lease)
    else
      redis.call('SET', lock, lease, 'KEEPTTL')
    end
    return kind .. id .. ' ' .. field(news) .. field(lease) .. field(us) .. field(waited)
  end
  held = redis.call('GET', lock)
  share = is_shared(held) and share
end
if letter == 'r' or (whose and owner_kind_is(whose, 'l')) then
  return refuse('expired')
end

-- Whether the attempt may hold the lock, if no waiter is before the attempt.
local fits = not held or (share and not alone and share.count() < tonumber(place_limit(place)))
if not alone then
  take_shared = function(taken, now)
    share = share or sharing()
    local granted = (held and share.grant or share.open)(taken, now)
    local slot = string.match(granted, '\n(%d+)$')
    return 'granted ' .. id .. ' ' .. field(news) .. field(lease_fence(granted)) .. (slot and field(slot) or '')
  end
end
local count
if fits or not waits then
  count = redis.call('LLEN', wait)
  if fits and count == 0 then
    if whose and whose ~= 'q' .. id then
      -- The newest request owns the key: an older one that did not confirm its grant in time does not
      -- take it back.
      local before = name .. 'of:' .. owner_id(whose)
      if is_ticket(redis.pcall('GET', before)) then
        redis.call('SET', before, 's', 'PX', TOMBSTONE)
      end
    end
    return take(us)
  elseif not waits and not (whose and count > 0) then
    return refuse('held', contention(count, held, us, SHOWN_HOLDERS))
  end
end

-- A queued ticket with the same idempotency key is taken over, or deleted if this attempt does not wait.
local at, queued, old, other = nil, us, nil, whose and owner_id(whose)
if other and other ~= id then
  -- A key of another type holds no ticket. It must not raise an error: the lock may have passed on by now.
  old = redis.pcall('GET', name .. 'of:' .. other)
  at = is_queued(old) and redis.call('LPOS', wait, other)
  if at then
    if ticket_fingerprint(old) ~= packed_fingerprint(ARGV[3]) then
      return refuse('mismatch')
    end
    queued = ticket_since(old)
    redis.call('DEL', name .. 'absent')
    -- The newest request owns the position. The letter `s` in `:of:ID` keeps the earlier attempt from asking for the
    -- position again.
    local gateway = ticket_gateway(old)
    if gateway ~= NO_GATEWAY or ticket_late_is(old, '1') then
      redis.call('SET', name .. 'of:' .. other, 's', 'PX', TOMBSTONE)
    else
      redis.call('DEL', name .. 'of:' .. other)
    end
    if waits then
      redis.call('LSET', wait, at, id)
    else
      redis.call('LREM', wait, '1', other)
      redis.call('DEL', used)
    end
    if gateway == me then
      news = news .. field('10:superseded64:' .. id_token(other))
    elseif gateway ~= NO_GATEWAY then
      send(gateway, 'superseded', id_token(other))
    end
  end
elseif is_queued(became) then
  at = redis.call('LPOS', wait, id)
  if at then
    queued = ticket_since(became)
    late = late or ticket_late_is(became, '1')
  end
end
if not waits then
  if share then
    -- The deleted ticket may have been the head, so the waiters behind it may now share the lock.
    hand_over(us, share, share.count())
    held = redis.call('GET', lock)
  end
  return refuse('held', contention(redis.call('LLEN', wait), held, us, SHOWN_HOLDERS))
end
if newest and not at and (is_ticket(became) or is_ticket(old)) then
  -- This attempt was queued before, and has not confirmed its grant in time. A waiter that came since then is newer.
  local newer = redis.pcall('GET', newest)
  local others = type(newer) == 'string' and newer ~= id and newer ~= other
  if others and is_queued(redis.pcall('GET', name .. 'of:' .. newer)) then
    redis.call('SET', name .. 'of:' .. id, 'n', 'PX', TOMBSTONE)
    if used then
      redis.call('SET', used, 'n' .. id, 'PX', TOMBSTONE)
    end
    return refuse('newer')
  end
end

-- Takes the waiter that `newest` names out of the queue of `count` waiters, because a newer waiter has just been queued.
-- Answers how many ids are left in the queue, and whether there was such a waiter. The letter `n` stays for the older
-- waiter and for its idempotency key.
local function remove_older(count)
  local older = redis.pcall('GET', newest)
  local body = type(older) == 'string' and older ~= id and redis.pcall('GET', name .. 'of:' .. older)
  if not is_queued(body) then
    return count, false
  end
  redis.call('SET', name .. 'of:' .. older, 'n', 'PX', TOMBSTONE)
  if ticket_keyed_is(body, '1') then
    redis.call('SET', name .. 'key:' .. ticket_key(body), 'n' .. older, 'PX', TOMBSTONE)
  end
  if ticket_gateway(body) == me then
    news = news .. field('8:outdated64:' .. id_token(older))
  elseif ticket_gateway(body) ~= NO_GATEWAY then
    send(ticket_gateway(body), 'outdated', id_token(older))
  end
  if count <= LONG then
    return count - redis.call('LREM', wait, '1', older), true
  end
  remember_left(left_before() + 1)
  return count, true
end

local ahead, removed = at, false
if at then
  count = redis.call('LLEN', wait)
else
  -- Waiters are queued in the order of their requests, at whichever gateway.
  count = redis.call('RPUSH', wait, id)
  local longest = tonumber(ARGV[8])
  if count > longest then
    redis.call('RPOP', wait)
    -- Dead tickets in a full queue must not keep living attempts out until their turn comes. Each attempt searches
    -- another part of a long queue.
    sweep(us % math.max(1, count - 64), 64, us, lives)
    local left = left_before()
    if left > 0 and is_possible(us) then
      remember_left(select(2, sweep_left(left, count, us % count, us)))
    end
    if redis.call('LLEN', wait) >= longest then
      if whose then
        -- The idempotency key leads to a position that was lost.
        redis.call('DEL', used)
      end
      return refuse('full')
    end
    count = redis.call('RPUSH', wait, id)
  end
  if count == 1 then
    redis.call('PEXPIRE', wait, QUEUE_LASTS)
  end
  if newest then
    count, removed = remove_older(count)
  end
  ahead = count - 1
end
if not at and is_ticket(old) then
  -- The earlier attempt did not confirm its grant in time, or its position was lost.
  redis.call('SET', name .. 'of:' .. other, 's', 'PX', TOMBSTONE)
end
-- The older waiter may have been the head, and have kept the waiters behind it from sharing the lock.
return stand(us, queued, count, ahead, removed and share and function()
  hand_over(us, share, share.count())
end)
