-- Grants a free lock to the first live waiter in the queue, and a shared lock to waiters that may share it. The script
-- that imports this part names `name`, the keys `lock`, `wait` and `counter`, `floor`, `me` and `news`, and imports
-- `clock`, `fence`, `field`, `lease`, `shared`, `send` and `gateways`.

-- How many dead tickets one script removes, which takes a few milliseconds. The gateway runs another script for the
-- rest.
local MOST_DEAD = 512
-- How many waiters one script grants a shared lock. The gateway runs another script for the rest.
local MOST_GRANTS = 64

-- The idempotency key of a ticket, and what this key leads to: perhaps the ticket of a newer request.
local function key_of(body)
  local used = name .. 'key:' .. ticket_key(body)
  return used, redis.pcall('GET', used)
end

-- Cleans up after a dead ticket that was deleted: deletes its idempotency key. If the key leads elsewhere, the attempt
-- is marked as superseded. If a letter (the record of an outcome) was deleted instead of a ticket, it is written back.
local function bury(id, body)
  if is_ticket(body) then
    if ticket_keyed_is(body, '1') then
      local used, whose = key_of(body)
      if whose == 'q' .. id then
        -- An idempotency key that leads to no ticket has no effect, so a failure of DEL must not end the script.
        redis.pcall('DEL', used)
        if ticket_gateway(body) == NO_GATEWAY and ticket_late_is(body, '1') then
          -- The attempt has left. Without the letter `g`, a late copy of its acquire would queue the attempt again.
          redis.call('SET', name .. 'of:' .. id, 'g', 'PX', 'TOMBSTONE')
        end
      elseif type(whose) == 'string' then
        redis.call('SET', name .. 'of:' .. id, 's', 'PX', 'TOMBSTONE')
      end
    end
  elseif type(body) == 'string' then
    redis.call('SET', name .. 'of:' .. id, body, 'PX', 'TOMBSTONE')
  end
end

-- Whether the idempotency key of a ticket still leads to this ticket. Also true for a ticket without a key.
local function owns_key(id, body)
  return not ticket_keyed_is(body, '1') or select(2, key_of(body)) == 'q' .. id
end

-- Puts a ticket back at the head of the queue, from which it was taken.
local function put_back(id, body)
  redis.call('LPUSH', wait, id)
  redis.pcall('PEXPIRE', wait, QUEUE_LASTS)
  if body then
    local left = ticket_ends(body) - ticket_since(body)
    redis.call('SET', name .. 'of:' .. id, body, 'PX', math.floor(left / 1000) + TOMBSTONE)
  end
end

-- Grants the lock to a ticket that was taken out of the queue; `share` grants a lease beside others. Answers how soon
-- the lease may end, in ms. After the grant is written, nothing raises.
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
    if ticket_late_is(body, '1') then
      redis.call('SET', of, 'g', 'PX', lasts + TOMBSTONE)
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

-- Grants a lock that `count` leases share to the head of the queue, then to the next waiter, as long as each may share
-- it. Expired leases must have been removed before. `soonest`: how soon a lease that was granted just before may end,
-- in ms. Answers as `hand_over` does, but also `nobody` if the head must still wait.
local function admit(us, share, count, soonest)
  local granted, waits, failed = soonest and 1 or 0, false, nil
  for turn = 1, MOST_DEAD + 1 do
    local id = redis.pcall('LINDEX', wait, '0')
    if type(id) == 'table' then
      failed = id
      break
    end
    waits = id and true
    if not id then
      break
    elseif turn > MOST_DEAD then
      news = news .. '6:4:more'
      break
    end
    local of = name .. 'of:' .. id
    local body = redis.pcall('GET', of)
    if type(body) == 'table' and not string.find(body.err, '^WRONGTYPE') then
      failed = body
      break
    end
    local alive = is_queued(body) and owns_key(id, body)
    local fits = alive and not ticket_mode_is(body, 'x') and count < tonumber(ticket_limit(body))
    if fits and granted == MOST_GRANTS then
      news = news .. '6:4:more'
      break
    end
    if alive then
      local asked
      asked, alive = pcall(lives, body, us, fits)
      if not asked then
        failed = { err = alive }
        break
      end
    end
    if alive and not fits then
      break
    end
    local fence, why
    if alive then
      fence, why = draw(us)
      if not fence then
        failed = why
        break
      end
    end
    local taken = redis.pcall('LPOP', wait)
    if type(taken) == 'table' then
      failed = taken
      break
    end
    if alive then
      -- An error in the grant must not lose the ticket, so the ticket is put back.
      local done, lasts = pcall(function()
        redis.call('DEL', of)
        return pass(id, body, fence, us, share.grant)
      end)
      if not done then
        put_back(id, body)
        failed = { err = lasts }
        break
      end
      soonest = math.min(soonest or lasts, lasts)
      count, granted = count + 1, granted + 1
    else
      redis.pcall('DEL', of)
      bury(id, body)
    end
  end
  if waits then
    local known, look = pcall(share.next_look, us)
    look = known and look or PROVISIONAL
    look = soonest and math.min(look, soonest) or look
    news = news .. field('6:passed' .. field(string.format('%.0f', look)))
    foretell(look)
  end
  if granted > 0 then
    return 'passed'
  elseif type(failed) == 'table' then
    return failed
  end
  return failed and 'stays' or 'nobody', failed
end

-- The time, or the error of Redis if the user no longer has the permission for TIME.
local function try_clock()
  local known, us = pcall(clock)
  return known and us or { err = us }
end

-- Grants the lock to the ticket that was just taken from the head of the queue, or to the next live waiter. Answers
-- `passed` if a waiter was granted the lock. Else the lock is unchanged, and the answer is `nobody` (no live waiter),
-- `more` (more dead tickets are queued), `stays` (there is no fence, and why), or the error of Redis. Nothing may raise
-- before the grant, or the ticket would be lost: if a permission was taken away, pcall catches the error (as text), and
-- the ticket is put back with LPUSH and SET. Nothing may raise after the grant either, or a caller that ends a lease
-- would be told that nothing happened.
local function hand_over(id, us)
  for _ = 1, MOST_DEAD do
    if not id then
      return 'nobody'
    end
    if type(us) == 'table' then
      put_back(id)
      return us
    elseif not is_possible(us) then
      put_back(id)
      return 'stays', 'clock'
    end
    local body = redis.pcall('GETDEL', name .. 'of:' .. id)
    if type(body) == 'table' and not string.find(body.err, '^WRONGTYPE') then
      -- GETDEL has failed, because the user no longer has the permission for it.
      put_back(id)
      return body
    end
    local asked, alive = true, is_queued(body) and owns_key(id, body)
    if alive then
      asked, alive = pcall(lives, body, us, true)
    end
    if not asked then
      put_back(id, body)
      return { err = alive }
    elseif alive then
      local fence, why = draw(us)
      if fence and ticket_mode_is(body, 'x') then
        pass(id, body, fence, us)
        return 'passed'
      elseif fence then
        local share = sharing()
        local done, lasts = pcall(pass, id, body, fence, us, share.open)
        if done then
          return admit(us, share, 1, lasts)
        end
        -- The lock is unchanged, because `open` writes it last.
        share.forget()
        put_back(id, body)
        return { err = lasts }
      end
      put_back(id, body)
      if type(why) == 'table' then
        return why
      end
      return 'stays', why
    end
    bury(id, body)
    id = redis.call('LPOP', wait)
  end
  if id then
    put_back(id)
    news = news .. '6:4:more'
    return 'more'
  end
  return 'nobody'
end

-- Grants a shared lock to waiters after some of its leases have ended; `left` leases still share it. The leases have
-- ended already, so an error here is ignored: the next round of a gateway passes the lock on.
local function pass_freed(us, share, left)
  if left == 0 then
    local first = redis.pcall('LPOP', wait)
    if type(first) ~= 'table' then
      hand_over(first, us)
    end
  else
    pcall(share.end_with_last, us)
    admit(us, share, left)
  end
end
