-- Passes a lock that is free, or becomes so, to the first in the queue who is alive, and one that is shared to those
-- who may share it. The script that imports it names `name`, the keys `lock`, `wait` and `counter`, `floor`, `me` and
-- `news`, and imports `clock`, `fence`, `field`, `lease`, `shared`, `send` and `gateways`.

-- How many dead tickets one script clears away: a few milliseconds. The gateway asks again for the rest.
local MOST_DEAD = 512
-- How many one script grants a lock that they share. The gateway asks again for the rest.
local MOST_GRANTS = 64

-- The idempotency key of a ticket, and where it leads to: a newer request may stand under it by now.
local function key_of(body)
  local used = name .. 'key:' .. ticket_key(body)
  return used, redis.pcall('GET', used)
end

-- Forgets a dead ticket, and what leads to it from its idempotency key. One whose key leads elsewhere is
-- superseded. A memory is no ticket.
local function bury(id, body)
  if is_ticket(body) then
    if ticket_keyed_is(body, '1') then
      local used, whose = key_of(body)
      if whose == 'q' .. id then
        -- A key that leads to no ticket counts for nothing: it is no failure if it stays.
        redis.pcall('DEL', used)
        if ticket_gateway(body) == NO_GATEWAY and ticket_late_is(body, '1') then
          -- Its attempt has left, and a copy of its acquire that is still on its way must not queue it again.
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

-- Whether a ticket is the one to which its idempotency key leads, if it has one.
local function owns_key(id, body)
  return not ticket_keyed_is(body, '1') or select(2, key_of(body)) == 'q' .. id
end

-- Puts a ticket back where it was taken from.
local function put_back(id, body)
  redis.call('LPUSH', wait, id)
  redis.pcall('PEXPIRE', wait, QUEUE_LASTS)
  if body then
    local left = ticket_ends(body) - ticket_since(body)
    redis.call('SET', name .. 'of:' .. id, body, 'PX', math.floor(left / 1000) + TOMBSTONE)
  end
end

-- Grants the lock to a ticket that was taken out of the queue; `share`: what grants it beside others. Answers how soon
-- that may end, in ms. When the lock is granted nothing raises any more.
local function pass(id, body, fence, us, share)
  local gateway, of = ticket_gateway(body), name .. 'of:' .. id
  local mine, kept, lasts = gateway == me, gateway == NO_GATEWAY, PROVISIONAL
  local ttl, limit = tonumber(ticket_ttl(body)), tonumber(ticket_hold_limit(body))
  if mine then
    lasts = limit > 0 and math.min(ttl, limit) or ttl
  elseif kept then
    lasts = math.max(1, math.floor((ticket_ends(body) - us) / 1000))
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
  -- It stays a ticket until the grant is confirmed, but does not stand in the queue.
  local left = ticket_ends(body) - us
  redis.call('SET', of, ticket_with(body, { state = 'w' }), 'PX', math.floor(left / 1000) + TOMBSTONE)
  -- From its confirmation on it lasts its TTL, which may be over sooner.
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

-- Grants a lock that so many share to the head of the queue, and to the next, as long as they may share it. Those whose
-- time is over have gone before. `soonest`: how soon a lease may end that was granted just before. Answers as
-- `hand_over`; where somebody waits whose turn it is not, that is `nobody`.
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
      -- What raises here must not lose the ticket.
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

-- The time, or the error of Redis if the user may not read it any more.
local function try_clock()
  local known, us = pcall(clock)
  return known and us or { err = us }
end

-- Passes the lock on, given the ticket that was just taken from the head of the queue, if any. Answers
-- `passed`; else nobody was granted it, and what it holds is as it was: `nobody` (is alive), `more` (dead
-- ones stand there), `stays` (there is no fence, and why), or the error of Redis. From here to the grant
-- nothing may raise: the ticket would be lost. So a permission that is taken away meanwhile is met by pcall, and
-- the ticket is put back, which needs LPUSH and SET. (Here pcall answers the text of an error of Redis.) Nor may
-- anything raise after the grant: who ends a lease would be told that nothing happened.
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
      -- The user may not do it any more.
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
        -- The lock is as it was: `open` writes it last.
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

-- Passes on what leases have left that shared the lock, which so many share yet. They have ended, so that it is no
-- failure if it cannot be passed on: the next round does.
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
