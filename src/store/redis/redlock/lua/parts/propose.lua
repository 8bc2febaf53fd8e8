-- Proposes a fence by the data and the clock of this node alone. A fence that a gateway has seen plays no part, because
-- a node that lost its data must get past older fences by what it knows itself.

-- The fence that this node proposes; `nil` and the reason if the node cannot propose one.
local function propose(last, top, us)
  -- 2025-01-01 and 2200-01-01: a clock outside of these is wrong, and no fence may be made from its time.
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
