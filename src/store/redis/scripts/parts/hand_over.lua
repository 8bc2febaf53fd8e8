-- Passes a lock that is free, or becomes so, to the first in the queue who is alive. The script that
-- imports it names `name`, the keys `lock`, `wait` and `counter`, `floor`, `me` and `news`.

-- How many dead tickets one script clears away: a few milliseconds. The gateway asks again for the rest.
local MOST_DEAD = 512

-- The idempotency key of a ticket, and where it leads to: a newer request may stand under it by now.
local function key_of(body)
  local used = name .. 'key:' .. string.sub(body, 155, 218)
  return used, redis.pcall('GET', used)
end

-- Leaves behind what must be known of a dead ticket that is gone, and forgets what leads to it from its
-- idempotency key. One whose key leads elsewhere is superseded.
local function bury(id, body)
  if string.byte(body, 19) == 49 then
    local used, whose = key_of(body)
    if whose == 'q' .. id then
      redis.call('DEL', used)
      if string.sub(body, 2, 17) == NO_GATEWAY and string.byte(body, 21) == 49 then
        -- Its attempt has left, and a copy of its acquire that is still on its way must not queue it again.
        redis.call('SET', name .. 'of:' .. id, 'g', 'PX', 'TOMBSTONE')
      end
    elseif type(whose) == 'string' then
      redis.call('SET', name .. 'of:' .. id, 's', 'PX', 'TOMBSTONE')
    end
  end
end

-- Whether a ticket is the one to which its idempotency key leads, if it has one.
local function owns_key(id, body)
  return string.byte(body, 19) ~= 49 or select(2, key_of(body)) == 'q' .. id
end

-- Grants the lock to a ticket that was taken out of the queue. From here on nothing may raise: the lock would have
-- passed on unheard. SET is allowed, because the fence was written by it.
local function pass(id, body, fence, us)
  local gateway, of = string.sub(body, 2, 17), name .. 'of:' .. id
  local mine, kept, lasts = gateway == me, gateway == NO_GATEWAY, PROVISIONAL
  local ttl, limit = tonumber(string.sub(body, 58, 65)), tonumber(string.sub(body, 66, 74))
  if mine then
    lasts = limit > 0 and math.min(ttl, limit) or ttl
  elseif kept then
    lasts = math.max(1, math.floor((string.sub(body, 42, 57) - us) / 1000))
  end
  local lease = id .. (mine and 'u' or kept and 'k' or 'p') .. string.sub(body, 18, 21) .. fence .. us
    .. string.format('%016.0f', us + lasts * 1000) .. string.sub(body, 58)
  redis.call('SET', lock, lease, 'PX', lasts)
  if mine then
    if string.byte(body, 21) == 49 then
      redis.call('SET', of, 'g', 'PX', lasts + TOMBSTONE)
    else
      -- Where it stays it counts for nothing, without a place in the queue.
      redis.pcall('DEL', of)
    end
    if string.byte(body, 19) == 49 then
      redis.call('SET', name .. 'key:' .. string.sub(body, 155, 218), 'l' .. id, 'PX', lasts + TOMBSTONE)
    end
    news = news .. field('7:granted' .. field(lease) .. '16:' .. us)
    return foretell(lasts)
  end
  -- It stays a ticket until the grant is confirmed, but does not stand in the queue.
  local left = string.sub(body, 42, 57) - us
  redis.call('SET', of, 'w' .. string.sub(body, 2), 'PX', math.floor(left / 1000) + TOMBSTONE)
  -- From its confirmation on it lasts its TTL, which may be over sooner.
  local soonest = math.min(lasts, ttl)
  news = news .. field('6:passed' .. field(string.format('%.0f', soonest)))
  if not kept then
    send(gateway, 'granted', string.sub(id, 2), fence)
  end
  foretell(soonest)
end

-- Passes the lock on, given the id at the head of the queue, if any. Answers `passed`; else nobody was granted it,
-- and what it holds is as it was: `nobody` (is alive), `more` (dead ones stand there), `stays` (there is no fence,
-- and why), or the error of Redis. An id leaves the queue last, when everything has been asked that may be
-- refused: so whoever is refused a command half-way through loses no place.
local function hand_over(id, us)
  for _ = 1, MOST_DEAD do
    if not id then
      return 'nobody'
    end
    if not is_possible(us) then
      return 'stays', 'clock'
    end
    local of = name .. 'of:' .. id
    local body = redis.pcall('GET', of)
    if type(body) == 'table' and string.sub(body.err, 1, 9) ~= 'WRONGTYPE' then
      -- The user may not do it any more.
      return body
    elseif is_queued(body) and owns_key(id, body) and lives(body, us, true) then
      local fence, why = draw(us)
      if not fence then
        if type(why) == 'table' then
          return why
        end
        return 'stays', why
      end
      local taken = redis.pcall('LPOP', wait)
      if type(taken) == 'table' then
        return taken
      end
      pass(id, body, fence, us)
      return 'passed'
    end
    if is_ticket(body) then
      redis.call('DEL', of)
      bury(id, body)
    end
    redis.call('LPOP', wait)
    id = redis.call('LINDEX', wait, '0')
  end
  if id then
    news = news .. '6:4:more'
    return 'more'
  end
  return 'nobody'
end
