-- Encodes a field of a reply: its length, a colon, and the value.

local function field(value)
  local text = value .. ''
  return #text .. ':' .. text
end
