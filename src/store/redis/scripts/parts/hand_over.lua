-- Grants a free lock to the first live waiter in the queue, and a shared lock to waiters that may share it. The script
-- that imports this part names `name`, the keys `lock`, `wait` and `counter`, `floor`, `me` and `news`, and imports
-- `clock`, `fence`, `field`, `lease`, `shared`, `send`, `gateways` and `order`.

-- How many dead tickets one script removes, which takes a few milliseconds. The gateway runs another script for the
-- rest.
local MOST_DEAD = 512
-- How many waiters one script grants a shared lock. The gateway runs another script for the rest.
local MOST_GRANTS = 64
-- How many waiters one script removes because of their orders: the script tells each of their gateways.
local MOST_OUTDATED = 64

-- The idempotency key of a ticket, and what this key leads to: perhaps the ticket of a newer request.
local function key_of(body)
  local used = name .. 'key:' .. ticket_key(body)
  return used, redis.pcall('GET', used)
end

-- Cleans up after a dead ticket that was deleted: deletes its idempotency key. If the key leads elsewhere, the attempt
-- is marked as replaced.
local function bury(id, body)
  if not ticket_keyed_is(body, '1') then
    return
  end
  local used, whose = key_of(body)
  if whose == 'q' .. id then
    redis.call('DEL', used)
    if ticket_gateway(body) == NO_GATEWAY and ticket_late_is(body, '1') then
      -- The attempt has left. Without the letter `g`, a late copy of its acquire would queue the attempt again.
      redis.call('SET', name .. 'of:' .. id, 'g', 'PX', 'TOMBSTONE')
    end
  elseif type(whose) == 'string' then
    redis.call('SET', name .. 'of:' .. id, 's', 'PX', 'TOMBSTONE')
  end
end

-- Whether the idempotency key of a ticket still leads to this ticket. Also true for a ticket without a key.
local function owns_key(id, body)
  return not ticket_keyed_is(body, '1') or select(2, key_of(body)) == 'q' .. id
end

-- Grants the lock to a ticket that was taken out of the queue; `share` grants a lease beside others. Answers how soon
-- the lease may end, in ms.
local function pass(id, body, fence, us, share)
  local gateway, of = ticket_gateway(body), name .. 'of:' .. id
  local mine, kept, lasts = gateway == me, gateway == NO_GATEWAY, PROVISIONAL
  local ttl, limit = tonumber(ticket_ttl(body)), tonumber(ticket_hold_limit(body))
  local reserved = reserved_until(ticket_hold_limit(body), body)
  if kept then
    lasts = math.max(1, math.floor((ticket_ends(body) - us) / 1000))
  end
  if reserved then
    -- Until its caller comes, a grant must not keep the lock beyond the end of the reservation either.
    local left = math.max(1, reserved - math.floor(us / 1000))
    lasts = mine and left or math.min(lasts, left)
  elseif mine then
    lasts = limit > 0 and math.min(ttl, limit) or ttl
  end
  local lease = id .. (mine and 'u' or kept and 'k' or 'p') .. ticket_span(body, 'mode', 'late') .. fence .. us
    .. string.format('%016.0f', us + lasts * 1000) .. ticket_span(body, 'ttl', 'end')
  if share then
    lease = share(lease, us)
  else
    redis.call('SET', lock, lease, 'PX', lasts)
  end
  if mine then
    remember_order(lease)
    if ticket_late_is(body, '1') then
      redis.call('SET', of, 'g', 'PX', lasts + TOMBSTONE)
    else
      redis.call('DEL', of)
    end
    if ticket_keyed_is(body, '1') then
      redis.call('SET', name .. 'key:' .. ticket_key(body), 'l' .. id, 'PX', lasts + TOMBSTONE)
    end
    news = news .. field('7:granted' .. field(lease) .. '16:' .. us)
    if not share then
      foretell(lasts)
    end
    return lasts
  end
  -- The ticket stays, as granted and no longer queued, until the waiter's gateway confirms the grant.
  local left = ticket_ends(body) - us
  redis.call('SET', of, ticket_with(body, { state = 'w' }), 'PX', math.floor(left / 1000) + TOMBSTONE)
  -- After the confirmation the lease lasts its TTL, which may end before the provisional grant would.
  local soonest = math.min(lasts, ttl)
  if not kept then
    send(gateway, 'granted', id_token(id), fence)
  end
  if not share then
    news = news .. field('6:passed' .. field(string.format('%.0f', soonest)))
    foretell(soonest)
  end
  return soonest
end

-- Tells the gateway of a waiter that the store has no position of the waiter any more, so that the waiter asks again. A
-- position that is kept has no gateway.
local function tell_forgotten(id, body)
  local gateway = ticket_gateway(body)
  if gateway == me then
    news = news .. field('9:forgotten64:' .. id_token(id))
  elseif gateway ~= NO_GATEWAY then
    send(gateway, 'forgotten', id_token(id))
  end
end

-- Grants a free lock to the first live waiter, or the lock that `count` leases share (`share` has its functions) to the
-- head of the queue, then to each next waiter that may share it. Expired leases must have been removed before. Answers
-- `passed` if a waiter was granted the lock. Else no waiter was, and the answer is `nobody` (no waiter may hold the
-- lock now), `more` (more dead or outdated tickets are queued), or `stays` (there is no fence, and why). Redis may refuse the first
-- command for the queue and for the counter, if another program wrote them: both come before a live waiter leaves the
-- queue, and from then on no command fails. `head`: the id at the head of the queue, if the script has read it.
local function hand_over(us, share, count, head)
  local granted, outdated, answer, why, soonest, waits = 0, 0, 'nobody', nil, nil, nil
  count = count or 0
  for turn = 1, MOST_DEAD + 1 do
    local id = turn == 1 and head or redis.call('LINDEX', wait, '0')
    waits = id
    if not id then
      break
    elseif not is_possible(us) then
      answer, why = 'stays', 'clock'
      break
    elseif turn > MOST_DEAD or outdated == MOST_OUTDATED then
      news, answer = news .. '6:4:more', 'more'
      break
    end
    -- A key of another type holds no ticket.
    local body = redis.pcall('GET', name .. 'of:' .. id)
    local alive = is_queued(body) and owns_key(id, body)
    local alone = alive and ticket_mode_is(body, 'x')
    if alone and newer_than(body) then
      -- The waiter leaves the queue like a dead one. When it asks again, it is refused.
      alive, outdated = false, outdated + 1
      tell_forgotten(id, body)
    end
    local fits = alive and (not share or not alone and count < tonumber(ticket_limit(body)))
    if fits and granted == MOST_GRANTS then
      news = news .. '6:4:more'
      break
    end
    alive = alive and lives(body, us, fits)
    if alive and not fits then
      break
    end
    local fence
    if alive then
      fence, why = draw(us)
      if not fence then
        answer = 'stays'
        break
      end
    end
    redis.call('LPOP', wait)
    if alive and alone then
      pass(id, body, fence, us)
      return 'passed'
    elseif alive then
      local write = share and share.grant
      share = share or sharing()
      local lasts = pass(id, body, fence, us, write or share.open)
      soonest = math.min(soonest or lasts, lasts)
      count, granted = count + 1, granted + 1
    elseif is_ticket(body) then
      redis.call('DEL', name .. 'of:' .. id)
      bury(id, body)
    end
  end
  if share and waits then
    local look = share.next_look(us)
    look = soonest and math.min(look, soonest) or look
    news = news .. field('6:passed' .. field(string.format('%.0f', look)))
    foretell(look)
  end
  return granted > 0 and 'passed' or answer, why
end

-- Grants a shared lock to waiters after some of its leases have ended; `left` leases still share it. The leases have
-- ended already, so an error is ignored: the next round of a gateway passes the lock on.
local function pass_freed(us, share, left)
  if left == 0 then
    pcall(hand_over, us)
  else
    share.end_with_last(us)
    pcall(hand_over, us, share, left)
  end
end
