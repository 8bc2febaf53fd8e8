-- Makes the rest of a lease that is released before its minimum hold is over: a lease that holds the lock, or the slot,
-- until then. The script that imports this part imports `lease`.

-- The rest of a lease, and how long it lasts, in ms; nothing if the lock does not rest, because the lease has no
-- minimum hold left, or because its holder was asked to release it.
local function rest_of(lease, us)
  local least = tonumber(lease_min_hold(lease)) or 0
  -- A server that takes over may have a clock that is behind the clock of the grant.
  local left = math.min(least, math.ceil((lease_since(lease) - us) / 1000) + least)
  if left <= 0 or lease_mode_below(lease, 'a') then
    return nil
  end
  local id, ends = REST .. lease_fence(lease), string.format('%016.0f', us + left * 1000)
  local keyed, recipient, slot = '0', NO_RECIPIENT, string.match(lease, '\n%d+$') or ''
  lease = lease_with(lease, { id = id, state = 'r', keyed = keyed, ends = ends, recipient = recipient })
  -- The owner and the metadata are those of a holder, and a rest has none.
  return lease_span(lease, 'id', 'recipient') .. '\n' .. slot, left
end
