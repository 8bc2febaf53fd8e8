-- Has a lease kept by somebody else from now on. The script that imports it names the keys `info` and
-- `ended`.

-- Makes somebody the keeper of a living lease. Not one that was its keeper before: that is a late copy
-- of a command, and whoever came after it goes on. Its first write is that of `remember`.
local function adopt(token, keeper, now, forget)
  local before = keeper_of(token)
  if before == keeper then
    return true
  end
  if remembers(ended, 'a:' .. keeper, now) then
    return false
  end
  remember(ended, now, forget, 'a:' .. before)
  redis.call('HSET', info, 'keeper', keeper)
  return true
end
