-- Proposes a fence, by what this node has and its clock alone: what a gateway has seen is no part of it,
-- because a node that lost its data must be lifted by what it knows itself.

-- The fence that this node proposes; nothing, and why, if there is none.
local function propose(last, top, us)
  -- 2025-01-01 and 2200-01-01: outside, no fence may be made from the time.
  if us < 1735689600000000 or us >= 7258118400000000 then
    return nil, 'clock'
  end
  if last and not string.find(last, '^%d+$') then
    return nil, 'counter'
  end
  local fence = math.max((tonumber(last) or 0) + 1, top + 1, us)
  if fence > 9007199254740991 then
    return nil, 'exhausted'
  end
  return fence
end
