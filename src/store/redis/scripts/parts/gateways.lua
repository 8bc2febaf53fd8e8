-- Finds out which gateways are alive. The script that imports this part names the key `counter` and `me` (the id of the
-- gateway that runs the script).

-- How long a provisional grant lasts until its gateway confirms it, in ms. A message and a confirmation take
-- milliseconds, and a gateway notices a lost message within two seconds. A short TTL does not shorten this time,
-- because the TTL begins with the confirmation.
local PROVISIONAL = 3000

-- Results of `is_alive` so far, separately for gateways with a new grant and without one.
local known = { [true] = {}, [false] = {} }

-- Whether a gateway counts as alive. The gateway that runs the script is alive, and a kept position needs no gateway.
-- With `granted` (a waiter there is about to be granted the lock) the gateway counts as dead, with all its waiters,
-- when the provisional grant ends, unless it confirms the grant.
local function is_alive(gateway, granted)
  if gateway == me or gateway == NO_GATEWAY then
    return true
  end
  local known = known[granted == true]
  if known[gateway] == nil then
    -- The liveness key of the gateway, `lg:{TAG}:gw:ID`, has the tag of the fence counter.
    local key = string.sub(counter, 1, -1 - #'fence') .. 'gw:' .. gateway
    known[gateway] = granted and redis.call('PEXPIRE', key, PROVISIONAL, 'LT') == 1
      or redis.call('EXISTS', key) == 1
  end
  return known[gateway]
end

-- Whether a ticket has a live waiter: the ticket is queued, its wait is not over, its gateway is alive, and the time
-- until which it would reserve the lock has not come.
local function lives(body, us, granted)
  return is_queued(body) and ticket_ends(body) > us
    and (reserved_until(ticket_hold_limit(body), body) or math.huge) > us / 1000
    and is_alive(ticket_gateway(body), granted)
end
