-- Knows which gateways are alive. The script that imports it names the key `counter` and `me` (the id
-- of the gateway that runs it).

-- How long a gateway counts as alive without a word of it: three of its periods. While it has a
-- grant to confirm, no longer than that grant lasts.
local ALIVE = 6000

-- The key that is there as long as a gateway is alive: `lg:{TAG}:gw:ID`, next to the counter.
local function alive_key(gateway)
  return string.sub(counter, 1, -1 - #'fence') .. 'gw:' .. gateway
end

local known

-- For how long a gateway still counts as alive; not at all: -2. Who asks is alive, and a place that
-- is kept needs no gateway.
local function alive_for(gateway)
  if gateway == me or gateway == '' then
    return -1
  end
  known = known or {}
  known[gateway] = known[gateway] or redis.call('PTTL', alive_key(gateway))
  return known[gateway]
end

-- Whether somebody still stands there, or may come back to it.
local function lives(waiter, now)
  return waiter.ends > now and alive_for(waiter.gateway) ~= -2
end
