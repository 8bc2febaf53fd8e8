-- Reads the time of this Redis.

local ZEROS = '0000000000000000'

-- The microseconds since 1970, as text: 16 digits until the year 2286. Leases hold it at a fixed place.
local function clock()
  local time = redis.call('TIME')
  local rest = time[2]
  local us = time[1] .. string.sub('000000', #rest + 1) .. rest
  return #us < #ZEROS and string.sub(ZEROS, #us + 1) .. us or us
end
