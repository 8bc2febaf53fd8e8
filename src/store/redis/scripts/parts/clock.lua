-- Reads the time of this Redis.

-- The microseconds since 1970, as text: 16 digits until the year 2286. Leases hold it at a fixed place.
local function clock()
  local time = redis.call('TIME')
  local us = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
  return #us < 16 and string.rep('0', 16 - #us) .. us or us
end
