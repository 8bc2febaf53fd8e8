-- Writes the fields of a reply: each is its length, a colon, and itself.

local function field(value)
  local text = value .. ''
  return #text .. ':' .. text
end
