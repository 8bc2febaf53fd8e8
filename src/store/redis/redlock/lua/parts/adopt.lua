-- Changes the recipient of a lease. The script that imports this part names the keys `info` and `ended`.

-- Makes `recipient` the recipient of a living lease, and returns whether that succeeded. A recipient that the lease had
-- before is refused: its command is a late copy, and the recipient that adopted the lease later keeps it. So is an
-- adoption that was given back, because its caller no longer waits for it. The first write of this function is that of
-- `remember`.
local function adopt(token, recipient, now, forget)
  local before = recipient_of(token)
  if before == recipient then
    return true
  end
  if remembers(ended, 'a:' .. recipient, now) or remembers(ended, 'g:' .. recipient, now) then
    return false
  end
  remember(ended, now, forget, 'a:' .. before)
  redis.call('HSET', info, 'recipient', recipient)
  return true
end
