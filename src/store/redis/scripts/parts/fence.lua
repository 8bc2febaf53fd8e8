-- Draws fencing tokens. The script that imports it names the key `counter` and `floor`: the highest fence
-- that its gateway has seen in the slot, in 16 digits (what follows them is not read).

-- Fences may be made from times between 2025-01-01 and 2200-01-01.
local EARLIEST, LATEST = '1735689600000000', '7258118400000000'

-- Whether a fence may be made from a time. Texts are compared, so their lengths must be equal.
local function is_possible(us)
  return #us == #EARLIEST and us >= EARLIEST and us < LATEST
end

-- The fence of a new grant, in 16 digits; or nothing, and why: a word, or the error of Redis. Only the
-- counter is written, and only if there is a fence.
local function draw(us)
  if not is_possible(us) then
    return nil, 'clock'
  end
  -- One command suffices as long as the time is the largest.
  local before = redis.pcall('SET', counter, us, 'GET')
  if type(before) == 'table' then
    return nil, before
  end
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
      -- It is no failure that would lose a ticket: the time may stand there as well.
      redis.pcall('DEL', counter)
    end
    return nil, next and 'exhausted' or 'counter'
  end
  local fence = string.format('%.0f', next)
  redis.call('SET', counter, fence)
  return fence
end
