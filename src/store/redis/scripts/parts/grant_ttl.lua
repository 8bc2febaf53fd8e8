-- Computes and sets how long a grant lasts. The script that imports this part names the key `lock` and `name`.

-- How long a lease may last from now, in ms: its TTL, but not beyond its hold limit or beyond the end that a release
-- request sets. A reservation lasts until its time.
local function time_left(held, since, us, ttl)
  local hold_limit, now = lease_hold_limit(held), math.floor(us / 1000)
  local limit, reserved = tonumber(hold_limit) or 0, reserved_until(hold_limit, held)
  local left, asked = ttl, asked_for(held)
  if reserved then
    left = reserved - now
  elseif limit > 0 then
    left = math.min(ttl, math.floor(since / 1000) + limit - now)
  end
  return asked and math.min(left, math.floor((asked + BACKSTOP - us) / 1000)) or left
end

-- A lease with its real end: the lease may be on a server whose clock is behind the clock that set its end, and
-- that server ends the lease when its remaining TTL is over. Answers the lease with its end by this server's clock.
local function until_its_end(held, us)
  local left = redis.call('PTTL', lock)
  local ends = string.format('%016.0f', us + math.max(0, left) * 1000)
  if left ~= -1 and ends < lease_ends(held) then
    return lease_with(held, { ends = ends })
  end
  return held
end

-- Restarts the TTL of a lease that may not have been delivered, and answers the lease; or nothing if its hold limit is
-- reached now. A provisional grant counts from now, and its idempotency key is marked as used. A delivered lease stays
-- as it is. `share`: the lease shares the lock. `alone`: the script may touch only the lock and the keys of a shared
-- lock.
local function settle_lease(held, us, share, alone)
  if lease_state_is(held, 'h') then
    return until_its_end(held, us)
  end
  local id, since = lease_id(held), is_untold(held) and us or lease_since(held)
  local left = time_left(held, since, us, tonumber(lease_ttl(held)))
  if left <= 0 then
    if share then
      share.remove(id, held, us)
    else
      redis.call('DEL', lock)
    end
    return nil
  end
  local ends = string.format('%016.0f', us + left * 1000)
  local lease = lease_with(held, { id = id, state = 'h', since = since, ends = ends })
  if share then
    share.keep(lease, us)
  else
    redis.call('SET', lock, lease, 'PX', left)
  end
  if not alone then
    if lease_late_is(held, '1') then
      redis.call('SET', name .. 'of:' .. id, 'g', 'PX', left + TOMBSTONE)
    else
      redis.call('DEL', name .. 'of:' .. id)
    end
    if lease_keyed_is(held, '1') then
      redis.call('SET', name .. 'key:' .. lease_key(held), 'l' .. id, 'PX', left + TOMBSTONE)
    end
  end
  return lease
end
