-- Draws fencing tokens. The script that imports this part names the key `counter` and `floor`: the highest fence that
-- the gateway has seen in the slot, in 16 digits (`draw` ignores what follows the digits).

-- Times from which a fence may be made: 2025-01-01 until 2200-01-01.
local EARLIEST, LATEST = '1735689600000000', '7258118400000000'

-- Whether a fence may be made from this time. The times are compared as texts, so their lengths must be equal.
local function is_possible(us)
  return #us == #EARLIEST and us >= EARLIEST and us < LATEST
end

-- The fence of a new grant, in 16 digits; or nothing and the reason. Writes only the counter, and only if there is a
-- fence. A counter of another type ends the script here.
local function draw(us)
  if not is_possible(us) then
    return nil, 'clock'
  end
  -- If the time is larger than the counter and the floor, this one command makes the time the new fence.
  local before = redis.call('SET', counter, us, 'GET')
  local is_number = not before or string.find(before, '^%d+$')
  if is_number and (not before or #before == #us and before < us) and floor < us then
    return us
  end
  local next = is_number
    and math.max((tonumber(before) or 0) + 1, tonumber(us), floor_fence(floor) + 1)
  if not next or next > 9007199254740991 then
    if before then
      redis.call('SET', counter, before)
    else
      redis.call('DEL', counter)
    end
    return nil, next and 'exhausted' or 'counter'
  end
  local fence = string.format('%.0f', next)
  redis.call('SET', counter, fence)
  return fence
end
