-- Makes a lease that may not have been delivered last its TTL. The script that imports this part names the key `lock` and
-- `name`, and imports `lease`, `grant_ttl` and `order`.

-- Restarts the TTL of a lease that may not have been delivered, and answers the lease; or nothing if its hold limit is
-- reached now. A provisional grant counts from now, and its idempotency key is marked as used. A delivered lease stays
-- as it is. `share`: the lease shares the lock. `alone`: the script may touch only the lock and the keys of a shared
-- lock. Nothing is answered either if the lock was granted for a higher order, which a caller has set meanwhile; or if
-- the lease has an order and the script may not touch the record of it: then the lease stays.
local function settle_lease(held, us, share, alone)
  if lease_state_is(held, 'h') then
    return until_its_end(held, us)
  end
  local untold = is_untold(held)
  if untold and alone and order_of(held) then
    return nil
  end
  local id, since = lease_id(held), untold and us or lease_since(held)
  local left = time_left(held, since, us, tonumber(lease_ttl(held)))
  if left <= 0 or (untold and newer_than(held)) then
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
    if untold then
      remember_order(lease)
    end
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
