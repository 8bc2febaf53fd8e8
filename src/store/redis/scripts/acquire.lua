-- Acquire: grants the lock to an attempt if the lock is free and no waiter is before the attempt; else queues the
-- attempt, if it waits.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
--   Also used, with names made from the first: `wait` (list: the ids of the waiters), `of:ID` (string: the ticket of an
--   attempt, or a letter that says how the attempt ended), `key:HASH` (string: the attempt or lease of an idempotency
--   key), `newest:HASH` (string: the newest waiter with a key of `supersedes`), `asked:ID` (string: when a release
--   request for a lease is due), `order` (string: the highest order of a grant), and the keys of a shared lock
--   (`parts/shared.lua`). `lg:{TAG}:orders` (sorted set: the names in this slot that have an order, by the time until
--   which it is remembered) has the tag of key 2.
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  how long the lease lasts, in ms: the least of its TTL and its hold limit; of a reservation its end, as a
--      time in ms
--   3  the terms of the lease: TTL, hold limit, .. as `records/packed.rs` packs them
--   4  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   5  the hash of the idempotency key, or empty, or nothing (and nothing follows)
--   6  empty or nothing: exclusive, without an order, does not wait, and no earlier copy of this command may arrive. Else one byte each
--      for the mode, whether there is a key, '0', and whether an earlier copy may arrive; then four for the limit
--   7  how long the attempt wants to wait, in ms, or empty, or nothing
--   8  how many waiters the queue may have, or nothing if the attempt does not wait
--   9  the liveness key of this gateway, if the script must extend it
--  10  the hash of the key of `supersedes`, or nothing
--  11  how long earlier requests of the caller have waited, in ms, or nothing
-- Reply
--   The first case that applies, in this order:
--   clock ARGV 1: news, seconds       no fence can be made from the time
--   exhausted | counter ARGV 1: news  all fences are used up; the fence counter is no number
--   replaced ARGV 1: news           the attempt has left, and its position is kept
--   again ARGV 1: news, lease, time   the attempt already holds the lock; `replaced`: a newer request keeps its lease
--   newer ARGV 1: news                a newer waiter took this attempt, or one with its key, out of the queue
--   withdrawn ARGV 1: news            the attempt was given back, or its lease has ended
--   replaced ARGV 1: news           a newer request with the same key took over the position or the lease
--   mismatch ARGV 1: news             the lease or the position of the key has other terms
--   collected | replayed ARGV 1: news, lease, time, waited
--                                     the lease that lives under the key. Collected: no caller was answered it before.
--                                     How long its position was queued, in us
--   expired ARGV 1: news              the lease of the key has ended
--   outdated ARGV 1: news, remembered, time
--                                     the lock was granted for a higher order
--   orders ARGV 1: news               orders of too many names are remembered
--   granted ARGV 1: news, fence, slot if it has one; of a reservation how long it lasts, in ms
--   over ARGV 1: news                 as granted, but the end of the reservation has come
--   held ARGV 1: news, contention ..  another attempt holds the lock, or will in a moment
--   queued ARGV 1: news, waiters before the attempt, how long its position has been queued in us, contention ..
--   full ARGV 1: news                 as queued, but too many wait
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
local counter, floor, news = KEYS[2], ARGV[4], ''

-- import clock
-- import fence

-- The longest TTL, in ms. A number that is larger is the end of a reservation.
local LONGEST_TTL = 86400000

-- Answers an attempt that is neither granted the lock nor queued. The DEL is a write, so that a server that takes no
-- writes refuses the script: a replica does not know who holds the lock. (Without the flags of the other scripts, Redis
-- refuses to grant and to queue when memory is short, but no write after a first one, so a living lease is answered.)
local function refuse(kind, more)
  redis.call('DEL', name .. 'absent')
  return kind .. ' ' .. id .. ' ' .. #news .. ':' .. news .. (more or '')
end

-- Grants the lock to the attempt. Before the call, the script has checked that no waiter is before the attempt, and
-- that the lock is free or may be shared with its holders. `share`: writes a shared lease, and answers what to reply.
-- `note_order`: remembers the order of the lease.
local function take(us, share, note_order)
  local lasts, told = ARGV[2], ''
  if tonumber(lasts) > LONGEST_TTL then
    lasts = lasts - math.floor(us / 1000)
    if lasts <= 0 then
      return refuse('over')
    end
    told = string.format('%.0f', lasts)
    told = #told .. ':' .. told
  end
  local fence, why = draw(us)
  if why then
    return refuse(why, why == 'clock' and #us - 6 .. ':' .. string.sub(us, 1, -7))
  end
  local marks = used and 'x100' or 'x000'
  if place ~= '' then
    marks = place_span(place, 'mode', 'late')
  end
  local ends = string.format('%016.0f', us + lasts * 1000)
  local lease = id .. 'h' .. marks .. fence .. us .. ends .. ARGV[3]
  told = share and share(lease) or '0:16:' .. fence .. told
  if not share then
    redis.call('SET', lock, lease, 'PX', lasts)
  end
  if note_order then
    note_order(lease)
  end
  if used then
    redis.call('SET', used, 'l' .. id, 'PX', lasts + TOMBSTONE)
  end
  if place_late_is(marks, '1') then
    redis.call('SET', of, 'g', 'PX', lasts + TOMBSTONE)
  end
  return 'granted ' .. id .. ' ' .. told
end

-- === Fast paths

-- Most attempts find no key, and a key that does not exist cannot have another type.
if place == '' and redis.call('EXISTS', lock, wait, of, used or of) == 0 then
  return take(clock())
end
local function read()
  return redis.call('MGET', lock, of, used or of)
end
local seen = read()
-- `x` in the argument: the attempt is exclusive.
local alone = place == '' or place_mode_is(place, 'x')
local ordered = place ~= '' and string.find(ARGV[3], '\n{"":"#', 1, true)
if alone and not ordered and not (seen[1] or seen[2] or seen[3]) and redis.call('EXISTS', lock, wait) == 0 then
  return take(clock())
end

local me, late, waits = floor_gateway(floor), place_late_is(place, '1'), ARGV[7] and tonumber(ARGV[7])
local newest = ARGV[10] and name .. 'newest:' .. ARGV[10]

-- import field
-- import lease
-- import shared
-- import contention

-- Writes the ticket of an attempt whose id is in the queue. `copies`: an earlier copy of its acquire may arrive.
local function write_ticket(us, since, copies)
  -- With an idempotency key, the ticket counts a little longer than the wait, because the gateway still sends a `leave`
  -- that keeps the position, perhaps twice. Without a key the ticket ends with the wait, even on a replica that has not
  -- received its deletion.
  local ends = string.format('%016.0f', us + (used and waits + 5000 or waits) * 1000)
  local mark = copies and '1' or '0'
  local marks = place_with(place, { late = mark })
  redis.call('SET', of, 'q' .. me .. marks .. since .. ends .. ARGV[3], 'PX', waits + 65000)
  if used then
    redis.call('SET', used, 'q' .. id, 'PX', waits + 65000)
  end
  if newest then
    local arrived = ''
    if ARGV[11] then
      arrived = string.format('%016.0f', math.min(since, us - ARGV[11] * 1000))
    end
    redis.call('SET', newest, id .. arrived, 'PX', waits + 65000)
  end
  if ARGV[9] and redis.call('PEXPIRE', ARGV[9], '6000') == 0 then
    -- The liveness key of this gateway was missing. If the gateway had waiters in this slot before, other scripts may
    -- have removed them as dead, so these waiters must ask again.
    redis.call('SET', ARGV[9], '1', 'PX', '6000')
    news = news .. '8:6:lapsed'
  end
end

local function queued(us, since, ahead, count, held)
  local waited = string.format('%.0f', math.max(0, us - since))
  return 'queued ' .. id .. ' ' .. field(news) .. field(ahead) .. field(waited) .. contention(count, held, us, '0')
end

-- Puts the id at the end of the queue, unless the queue is full, and answers how many ids are in the queue then.
-- Waiters are queued in the order of their requests, at whichever gateway.
local function join()
  local count = redis.call('RPUSH', wait, id)
  if count > tonumber(ARGV[8]) then
    redis.call('RPOP', wait)
    return nil, count
  elseif count == 1 then
    redis.call('PEXPIRE', wait, QUEUE_LASTS)
  end
  return count
end

-- Most other attempts find a lock that another attempt holds exclusively, and no record of their own.
if seen[1] and not (seen[2] or used or newest or ordered) and lease_id(seen[1]) ~= id and not is_shared(seen[1]) then
  local count = waits and join()
  if count then
    local us = clock()
    write_ticket(us, us, late)
    return queued(us, us, count - 1, count, seen[1])
  elseif not waits then
    return refuse('held', contention(redis.call('LLEN', wait), seen[1], clock(), SHOWN_HOLDERS))
  end
end

-- import attempt_marks
-- import send
-- import gateways
-- import order
-- import hand_over
-- import sweep
-- import grant_ttl
-- import settle_lease

-- === Bring up to date: expired leases are removed, and waiters that may have the lock are granted it.

local us, share, passed, why = clock(), is_shared(seen[1]) and sharing(), nil, nil
local sharers = share and share.prune(us) or 0
if sharers > 0 then
  passed, why = hand_over(us, share, sharers)
elseif share or not seen[1] then
  if not share then
    -- MGET reads a key of another type as nothing, so GET ends the script here for such a key.
    redis.call('GET', lock)
  end
  local head = redis.call('LINDEX', wait, '0')
  if head then
    -- After a first write, Redis does not refuse the script when memory is short: the waiter is granted the lock.
    redis.call('DEL', name .. 'absent')
    passed, why = hand_over(us, nil, 0, head)
  end
end
if passed == 'stays' then
  return refuse(why, why == 'clock' and field(string.sub(us, 1, -7)))
end

-- === Write: what the cases below carry out.

-- Writes the letter of an attempt, which is remembered until a tombstone time after the end of a lease.
local function outlast(lease, attempt, letter)
  local left = math.max(0, math.floor((lease_ends(lease) - us) / 1000))
  redis.call('SET', name .. 'of:' .. attempt, letter, 'PX', left + TOMBSTONE)
end

-- `again` and `replay` answer nothing if the lease has ended at this very moment.
local function again(own, share)
  redis.call('DEL', name .. 'absent')
  local lease = settle_lease(own, us, share)
  if lease and late then
    outlast(lease, id, 'g')
  end
  return lease and 'again ' .. id .. ' ' .. field(news) .. field(lease) .. field(us)
end

local function replay(kept, share)
  redis.call('DEL', name .. 'absent')
  local before, token, replaces, ticket = kept_by(kept), id_token(id), false, nil
  if before ~= token then
    replaces, ticket = may_replace('2' .. before, 'a')
  end
  local lease = settle_lease(kept, us, share)
  if not lease then
    return nil
  elseif replaces then
    outlast(lease, '2' .. before, 'a')
  end
  -- No caller has been told about this lease yet, except possibly this attempt, whose answer may have been lost.
  local first = is_untold(kept) or (lease_answered_is(kept, '2') and before == token)
  -- The lease may be delivered by this answer. So it is no longer given back, and this attempt is its recipient.
  local answered = first and '2' or '1'
  lease = lease_with(lease, { answered = answered, recipient = token })
  if share then
    share.rewrite(lease)
  else
    redis.call('SET', lock, lease, 'KEEPTTL')
  end
  local waited = is_ticket(ticket) and string.format('%.0f', math.max(0, us - ticket_since(ticket))) or '0'
  return (first and 'collected ' or 'replayed ') .. id .. ' ' .. field(news) .. field(lease) .. field(us) .. field(waited)
end

-- Tells the gateway of a waiter what has become of it. A position that is kept has no gateway.
local function notify(gateway, what, waiter)
  if gateway == me then
    news = news .. field(field(what) .. field(id_token(waiter)))
  elseif gateway ~= NO_GATEWAY then
    send(gateway, what, id_token(waiter))
  end
end

-- The newest request owns its key: the letter `s` in `:of:ID` keeps an earlier attempt from taking it back.
local function mark_replaced(other, ticket)
  if is_ticket(ticket) then
    redis.call('SET', name .. 'of:' .. other, 's', 'PX', TOMBSTONE)
  end
end

-- Takes over the position `at` of an earlier attempt with the same key, or gives it up if this attempt does not wait.
local function take_over(at, other, ticket)
  redis.call('DEL', name .. 'absent')
  if ticket_gateway(ticket) ~= NO_GATEWAY or ticket_late_is(ticket, '1') then
    mark_replaced(other, ticket)
  else
    redis.call('DEL', name .. 'of:' .. other)
  end
  if waits then
    redis.call('LSET', wait, at, id)
  else
    redis.call('LREM', wait, '1', other)
    redis.call('DEL', used)
  end
  notify(ticket_gateway(ticket), 'replaced', other)
end

-- Joins a queue that may be full: dead tickets must not keep living attempts out until their turn comes. Each attempt
-- searches another part of a long queue.
local function join_or_sweep()
  local count, full = join()
  if count then
    return count
  end
  sweep(us % math.max(1, full - 64), 64, us, lives)
  local left = left_before()
  if left > 0 and is_possible(us) then
    remember_left(select(2, sweep_left(left, full, us % full, us)))
  end
  return redis.call('LLEN', wait) < tonumber(ARGV[8]) and join()
end

-- The waiter with the same key of `supersedes`, its ticket and when it arrived, unless this attempt or `other` is this
-- waiter.
local function rival(other)
  local value = newest and redis.pcall('GET', newest)
  local found = type(value) == 'string' and newest_id(value)
  local ticket = found and found ~= id and found ~= other and redis.pcall('GET', name .. 'of:' .. found)
  if is_queued(ticket) then
    return found, ticket, newest_reaches(value, 'arrived') and newest_arrived(value) or ticket_since(ticket)
  end
end

-- Whether this attempt leaves, and not the rival: the attempt with the lower order leaves, or else the earlier one. A
-- rival that is dead does not stay. `was_queued`: this attempt was queued before and has not confirmed its grant in time,
-- so the rival has come later.
local function yields(ticket, arrived, was_queued)
  local mine, theirs = ordered and order_of(ARGV[3]), ordered and order_of(ticket)
  local stays = was_queued or (ARGV[11] and arrived > string.format('%016.0f', us - ARGV[11] * 1000))
  if mine and theirs and mine ~= theirs then
    stays = theirs > mine
  end
  return stays and lives(ticket, us)
end

-- Whether the name may have an order: it has one, or few other names in this slot have one.
local function may_have_order()
  local orders, now = string.sub(counter, 1, -1 - #'fence') .. 'orders', math.floor(us / 1000)
  local left = ORDER_KEEP + (waits or 0)
  local is_new = redis.call('ZADD', orders, string.format('%.0f', now + left), name) == 1
  if is_new and not highest() then
    local past = string.format('%.0f', now)
    for _, over in ipairs(redis.call('ZRANGE', orders, '-inf', past, 'BYSCORE', 'LIMIT', '0', '64')) do
      redis.call('ZREM', orders, over)
    end
    if redis.call('ZCARD', orders) > MOST_ORDERS then
      redis.call('ZREM', orders, name)
      return false
    end
  end
  redis.call('PEXPIRE', orders, string.format('%.0f', left))
  return true
end

-- Takes the position of an attempt out of the queue, because the order of the attempt is outdated.
local function leave_queue(attempt, ticket)
  redis.call('LREM', wait, '1', attempt)
  redis.call('DEL', name .. 'of:' .. attempt)
  bury(attempt, ticket)
  if attempt ~= id then
    tell_forgotten(attempt, ticket)
  end
end

-- Takes an older waiter out of the queue, in which `count` wait, and answers how many are left. The letter `n` stays
-- for the older waiter and for its idempotency key.
local function remove_older(older, ticket, count)
  redis.call('SET', name .. 'of:' .. older, 'n', 'PX', TOMBSTONE)
  if ticket_keyed_is(ticket, '1') then
    redis.call('SET', name .. 'key:' .. ticket_key(ticket), 'n' .. older, 'PX', TOMBSTONE)
  end
  notify(ticket_gateway(ticket), 'outdated', older)
  if count <= LONG then
    return count - redis.call('LREM', wait, '1', older)
  end
  remember_left(left_before() + 1)
  return count
end

-- === Decide: the first case that applies, on values that do not change.

local function decide(seen)
  local held, became, whose = seen[1], seen[2], used and seen[3]
  local letter, kind = became and string.sub(became, 1, 1), whose and owner_kind(whose)
  local share, exclusive = is_shared(held) and (share or sharing()), is_lease(held) and held

  -- replaced: the attempt has left, and its position is kept. A grant for it belongs to the caller that comes back.
  if is_ticket(became) and ticket_gateway(became) == NO_GATEWAY then
    return refuse('replaced')
  end
  -- again; replaced: a newer request with the same idempotency key was answered the lease meanwhile.
  local own = exclusive or share and share.find(id, us)
  if own and lease_id(own) == id then
    if used and kept_by(own) ~= id_token(id) then
      return refuse('replaced')
    end
    return again(own, share) or decide(read())
  end
  -- newer, withdrawn, replaced: how the attempt ended.
  if letter == 'n' or kind == 'n' then
    return refuse('newer')
  elseif letter == 'g' or letter == 'b' or (letter == 'r' and not used) then
    return refuse('withdrawn')
  elseif letter == 'a' or letter == 's' then
    return refuse('replaced')
  end
  -- mismatch, collected, replayed: the living lease of the key. In a shared lock, it is the lease to which the key
  -- leads.
  local kept = exclusive or share and whose and share.find(owner_id(whose), us)
  if kept and used and lease_keyed_is(kept, '1') and lease_key(kept) == key then
    if lease_fingerprint(kept) ~= packed_fingerprint(ARGV[3]) then
      return refuse('mismatch')
    end
    return replay(kept, share) or decide(read())
  end
  -- expired
  if letter == 'r' or kind == 'l' then
    return refuse('expired')
  end
  local other = whose and owner_id(whose) ~= id and owner_id(whose)
  -- outdated: the position of the attempt, or of its key, is given up; orders.
  local record = ordered and newer_than(ARGV[3])
  if record then
    redis.call('DEL', name .. 'absent')
    for _, attempt in ipairs({ id, other or nil }) do
      local ticket = redis.pcall('GET', name .. 'of:' .. attempt)
      -- A position under the key in other words may have a higher order, and stays.
      if is_queued(ticket) and ticket_fingerprint(ticket) == packed_fingerprint(ARGV[3]) then
        leave_queue(attempt, ticket)
      end
    end
    if share then
      -- The position may have been the head, and have kept the waiters behind it from sharing the lock.
      hand_over(us, share, share.count())
    elseif not held then
      -- The lock may have been granted to the kept position of this attempt, and be free now.
      hand_over(us)
    end
    return refuse('outdated', field(record) .. field(us))
  elseif ordered and not may_have_order() then
    return refuse('orders')
  end
  -- granted, over
  local fits = not held or (share and not alone and share.count() < tonumber(place_limit(place)))
  local count = (fits or not waits) and redis.call('LLEN', wait)
  if fits and count == 0 then
    -- An earlier attempt with the same key has not confirmed its grant in time.
    mark_replaced(other, other and redis.pcall('GET', name .. 'of:' .. other))
    return take(us, not alone and function(lease)
      local granted = (share and share.grant or sharing().open)(lease, us)
      local slot = string.match(granted, '\n(%d+)$')
      return field(news) .. field(lease_fence(granted)) .. (slot and field(slot) or '')
    end, ordered and remember_order)
  end
  -- held, mismatch: an attempt that does not wait gives up the position of its key.
  if not waits and not (other and count > 0) then
    return refuse('held', contention(count, held, us, SHOWN_HOLDERS))
  end
  -- A key of another type holds no ticket. It must not raise an error: the lock may have passed on by now.
  local ticket = became
  if other then
    ticket = redis.pcall('GET', name .. 'of:' .. other)
  end
  local at = is_queued(ticket) and redis.call('LPOS', wait, other or id)
  if at and other and ticket_fingerprint(ticket) ~= packed_fingerprint(ARGV[3]) then
    return refuse('mismatch')
  elseif at and other then
    take_over(at, other, ticket)
  end
  if not waits then
    if at and share then
      -- The position may have been the head, so the waiters behind it may now share the lock.
      hand_over(us, share, share.count())
    end
    return refuse('held', contention(redis.call('LLEN', wait), held, us, SHOWN_HOLDERS))
  end
  -- queued, at the position of the key or of the attempt
  if at then
    local copies = late or (not other and ticket_late_is(ticket, '1'))
    write_ticket(us, ticket_since(ticket), copies)
    return queued(us, ticket_since(ticket), at, redis.call('LLEN', wait), held)
  end
  -- newer: a waiter with the same key has a higher order, or has arrived later.
  local older, its_ticket, arrived = rival(other)
  local was_queued = is_ticket(became) or is_ticket(ticket)
  if older and yields(its_ticket, arrived, was_queued) then
    if was_queued then
      redis.call('SET', of, 'n', 'PX', TOMBSTONE)
      if used then
        redis.call('SET', used, 'n' .. id, 'PX', TOMBSTONE)
      end
    end
    return refuse('newer')
  end
  -- full; queued, at the end
  local joined = join_or_sweep()
  if not joined then
    if whose then
      -- The idempotency key leads to a position that was lost.
      redis.call('DEL', used)
    end
    return refuse('full')
  end
  local waiters = older and remove_older(older, its_ticket, joined) or joined
  mark_replaced(other, other and ticket)
  write_ticket(us, us, late)
  if older and share then
    -- The older waiter may have been the head, and have kept the waiters behind it from sharing the lock.
    hand_over(us, share, share.count())
  end
  return queued(us, us, waiters - 1, waiters, held)
end

return decide((passed or share) and read() or seen)
