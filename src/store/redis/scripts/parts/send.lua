-- Sends messages to gateways. The script that imports this part names the keys `lock` and `wait`, `me` (the id of the
-- gateway that runs the script) and `news` (the part of the reply that tells this gateway of consequences).

-- Leases that end sooner than this, in ms, are announced by a message. The end of a longer lease is noticed by the
-- periodic check of each gateway with a waiter for the lock.
local SHORT = 4000

-- Sends a message about this lock to a gateway, or to `all`, and answers how many gateways received it. A failure to
-- send is only reported in the news, because gateways notice the change within two seconds.
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

-- Tells the gateway of the first waiter how long the lock stays held, in ms, so that the gateway looks at the lock
-- then. The message goes to all gateways if the waiter's gateway does not receive it or has died, if the position is
-- kept for a caller that is away, or if the ticket is dead.
local function foretell(lasts)
  if lasts >= SHORT then
    return
  end
  -- The script has written already, so a key of another type must not raise.
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
