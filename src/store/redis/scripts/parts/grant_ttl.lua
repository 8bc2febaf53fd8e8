-- Makes grants last. The script that imports it names the key `lock` and `name`.

-- How long a lease may last from now with a TTL, up to its hold limit and to when it must be released, in ms.
local function time_left(held, since, us, ttl)
  local limit = tonumber(string.sub(held, 127, 135)) or 0
  local until_limit = math.floor(since / 1000) + limit - math.floor(us / 1000)
  local left, asked = limit > 0 and math.min(ttl, until_limit) or ttl, asked_for(held)
  return asked and math.min(left, math.floor((asked + BACKSTOP - us) / 1000)) or left
end

-- A lease as it lasts: Redis may have put it on a server whose clock is behind the one that it was made by, and
-- ends it by what is left.
local function until_its_end(held, us)
  local left = redis.call('PTTL', lock)
  local ends = string.format('%016.0f', us + math.max(0, left) * 1000)
  if left ~= -1 and ends < string.sub(held, 103, 118) then
    return string.sub(held, 1, 102) .. ends .. string.sub(held, 119)
  end
  return held
end

-- Makes a lease that may not have been delivered last its full TTL from now, and answers it; nothing if its
-- limit is this very instant. A grant that was provisional counts from now, and its idempotency key is
-- used. One that was delivered is left as it is. `share`: it shares the lock. `alone`: no key but the lock, and what
-- belongs to those who share it, may be touched.
local function settle_lease(held, us, share, alone)
  local state = string.byte(held, 66)
  if state == 104 then
    return until_its_end(held, us)
  end
  local id, since = string.sub(held, 1, 65), is_untold(held) and us or string.sub(held, 87, 102)
  local left = time_left(held, since, us, tonumber(string.sub(held, 119, 126)))
  if left <= 0 then
    if share then
      share.remove(id, held, us)
    else
      redis.call('DEL', lock)
    end
    return nil
  end
  local lease = id .. 'h' .. string.sub(held, 67, 86) .. since
    .. string.format('%016.0f', us + left * 1000) .. string.sub(held, 119)
  if share then
    share.keep(lease, us)
  else
    redis.call('SET', lock, lease, 'PX', left)
  end
  if not alone then
    if string.byte(held, 70) == 49 then
      redis.call('SET', name .. 'of:' .. id, 'g', 'PX', left + TOMBSTONE)
    else
      redis.call('DEL', name .. 'of:' .. id)
    end
    if string.byte(held, 68) == 49 then
      redis.call('SET', name .. 'key:' .. string.sub(held, 216, 279), 'l' .. id, 'PX', left + TOMBSTONE)
    end
  end
  return lease
end
