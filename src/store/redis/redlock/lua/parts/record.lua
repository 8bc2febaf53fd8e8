-- Reads a lease record.

-- The layout of the record that this version reads and writes.
local LAYOUT = '1'

-- The fields `v`, `lock` and the named ones of a lease record; nothing if there is no record. What
-- is not a record of this layout comes as a second result, to be answered and left alone.
local function read_record(info, ...)
  local fields = redis.call('HMGET', info, 'v', 'lock', ...)
  if fields[1] == LAYOUT then
    return fields, false
  end
  if not fields[1] and redis.call('HLEN', info) == 0 then
    return nil, false
  end
  -- A value of somebody else may be of any length.
  return nil, string.format('%.16s', fields[1] or '')
end
