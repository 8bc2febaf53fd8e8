-- Appends a lease to a reply.

-- The fields of a lease record that a reply shows, in the order in which `tell` takes them.
local TOLD = { 'fence', 'ttl', 'acquired', 'hold', 'owner', 'metadata', 'asked' }

-- The latest end of a lease for which this release request is stored; no limit if there is none. The gateway that has
-- requested the release breaks the lease in time, unless that gateway has died.
local function last_instant(asked)
  return asked and request_ends(asked) + 1000 or math.huge
end

-- Appends a lease to a reply: fence, ttl, time left, time held, time left until the hold limit (-1: none), owner,
-- metadata, in how many ms the lease must be released and who requested that (or empty). `first` is the index at which
-- the fields of TOLD begin.
local function tell(reply, fields, first, left, now)
  local n, hold = #reply, tonumber(fields[first + 3])
  reply[n + 1] = tonumber(fields[first])
  reply[n + 2] = tonumber(fields[first + 1])
  reply[n + 3] = left
  reply[n + 4] = math.max(0, now - (tonumber(fields[first + 2]) or now))
  reply[n + 5] = hold and math.max(0, hold - now) or -1
  reply[n + 6] = fields[first + 4] or ''
  reply[n + 7] = fields[first + 5] or ''
  local asked = fields[first + 6]
  local ends = asked and string.format('%016.0f', math.max(0, request_ends(asked) - now))
  reply[n + 8] = asked and request_with(asked, { ends = ends }) or ''
  return reply
end
