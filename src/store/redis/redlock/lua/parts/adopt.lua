-- Changes the keeper of a lease. The script that imports this part names the keys `info` and `ended`.

-- Makes `keeper` the keeper of a living lease, and returns whether that succeeded. A keeper that the lease had before
-- is refused: its command is a late copy, and the keeper that adopted the lease later keeps it. So is an adoption that
-- was given back, because its caller no longer waits for it. The first write of this function is that of `remember`.
local function adopt(token, keeper, now, forget)
  local before = keeper_of(token)
  if before == keeper then
    return true
  end
  if remembers(ended, 'a:' .. keeper, now) or remembers(ended, 'g:' .. keeper, now) then
    return false
  end
  remember(ended, now, forget, 'a:' .. before)
  redis.call('HSET', info, 'keeper', keeper)
  return true
end
