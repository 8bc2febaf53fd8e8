-- Reads the time of this Redis.

-- The microseconds since 1970, as text: 16 digits, unless the clock is impossible.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end
