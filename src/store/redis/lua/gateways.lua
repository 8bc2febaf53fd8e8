-- Knows which gateways are alive, and sends them messages. The script that imports it names the keys
-- `lock` and `counter`, `me` (the id of the gateway that runs it) and `news` (what that gateway has
-- to hear, a part of the reply).

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

-- Sends a gateway a message. That it cannot be sent is no reason to fail: it is found out within a
-- period.
local function send(gateway, what, token)
  local name = string.sub(lock, 5, -7)
  local sent = redis.pcall('PUBLISH', 'lg:gw:' .. gateway, what .. ' ' .. token .. ' ' .. name)
  if type(sent) == 'table' and sent.err then
    news[#news + 1] = { 'unsent' }
  end
end
