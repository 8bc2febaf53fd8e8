-- Sends messages to gateways. The script that imports it names the keys `lock` and `wait`, `me` (the id of
-- the gateway that runs it) and `news` (what that gateway is to be told, a part of the reply).

-- A lease that lasts as long as two rounds is seen before its end by every gateway at which somebody
-- waits for the lock. The end of a shorter one is told.
local SHORT = 4000

-- Sends a gateway, or `all`, a message about this lock, and answers how many have received it.
-- That it cannot be sent is no reason to fail: it is found out within a period.
local function send(gateway, what, word, more)
  local message = what .. ' ' .. word .. ' ' .. string.sub(lock, #'lg:{' + 1, -1 - #'}:lock')
  if more then
    message = message .. ' ' .. more
  end
  local channel = gateway == 'all' and 'lg:gw:all' or 'lg:gw:' .. gateway
  local sent = redis.pcall('PUBLISH', channel, message)
  if type(sent) == 'table' then
    news = news .. '8:6:unsent'
    return nil
  end
  return sent
end

-- Tells the gateway of whoever is next how long the lock stays held, in ms: it looks after the lock then.
-- One message, however many wait. Where nobody receives it, because that gateway has died, the place is kept for
-- a caller who is away or the ticket is dead, all gateways are told.
local function foretell(lasts)
  if lasts >= SHORT then
    return
  end
  -- What is of another type is no reason to fail any more.
  local next = redis.pcall('LINDEX', wait, '0')
  if type(next) ~= 'string' then
    return
  end
  local body = redis.pcall('GET', string.sub(lock, 1, -5) .. 'of:' .. next)
  local gateway, ms = is_queued(body) and ticket_gateway(body) or NO_GATEWAY, string.format('%.0f', lasts)
  if gateway == me then
    return
  end
  if gateway == NO_GATEWAY or send(gateway, 'ends', ms) == 0 then
    send('all', 'ends', ms)
  end
end
