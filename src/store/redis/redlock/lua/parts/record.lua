-- Reads a lease record.

-- The layout of a lease record that this version of the gateway reads and writes.
local LAYOUT = '1'

-- The fields `v`, `lock` and the named fields of a lease record; `nil` if there is no record. If the record has another
-- layout, the second result is the version of that layout, for the reply; the record is not changed.
local function read_record(info, ...)
  local fields = redis.call('HMGET', info, 'v', 'lock', ...)
  if fields[1] == LAYOUT then
    return fields, false
  end
  if not fields[1] and redis.call('HLEN', info) == 0 then
    return nil, false
  end
  -- A version that another program wrote may be of any length.
  return nil, string.format('%.16s', fields[1] or '')
end
