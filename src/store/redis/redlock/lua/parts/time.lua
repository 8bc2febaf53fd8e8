-- Reads the time of this node.

-- The milliseconds and the microseconds of a reply to TIME.
local function instants(time)
  local us = time[1] * 1000000 + time[2]
  return math.floor(us / 1000), us
end
