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
