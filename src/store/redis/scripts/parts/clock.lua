-- Reads the time of this Redis server.

local ZEROS = '0000000000000000'

-- The time in microseconds since 1970, as text of 16 digits (until the year 2286), because a lease holds the time in a
-- field of fixed width.
local function clock()
  local time = redis.call('TIME')
  local rest = time[2]
  local us = time[1] .. string.sub('000000', #rest + 1) .. rest
  return #us < #ZEROS and string.sub(ZEROS, #us + 1) .. us or us
end
