-- Knows which gateways are alive. The script that imports it names the key `counter` and `me` (the id
-- of the gateway that runs it).

-- How long a grant lasts that another gateway is told of by a message, until it confirms it: a
-- message and a confirmation take milliseconds, and a lost message is found after two seconds. Not
-- less for a short TTL, which begins with the confirmation.
local PROVISIONAL = 3000

-- By whether they are granted something.
local known = { [true] = {}, [false] = {} }

-- Whether a gateway counts as alive. Who asks is, and a place that is kept needs no gateway. One that is
-- `granted` something counts as dead when the grant ends, with all who wait through it, unless it confirms.
local function is_alive(gateway, granted)
  if gateway == me or gateway == NO_GATEWAY then
    return true
  end
  local known = known[granted == true]
  if known[gateway] == nil then
    -- It is there as long as the gateway is alive: `lg:{TAG}:gw:ID`, next to the counter.
    local key = string.sub(counter, 1, -1 - #'fence') .. 'gw:' .. gateway
    known[gateway] = granted and redis.call('PEXPIRE', key, PROVISIONAL, 'LT') == 1
      or redis.call('EXISTS', key) == 1
  end
  return known[gateway]
end

-- Whether somebody still stands there, or may come back to it.
local function lives(body, us, granted)
  return is_queued(body) and ticket_ends(body) > us
    and is_alive(ticket_gateway(body), granted)
end
