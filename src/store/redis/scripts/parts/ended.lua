-- Finds out whether a lease that no longer exists was ended by force. The script that imports this part names `name`.

-- How a lease ended: `broken ` if it was broken; `overdue ` if the time by which its holder was asked to release it is
-- over; else nothing.
local function ended_by_force(id, us)
  local asked = name .. 'asked:' .. id
  if redis.call('GET', name .. 'of:' .. id) == 'b' then
    return 'broken '
  end
  local ends = redis.call('GET', asked)
  return ends and ends <= us and 'overdue ' or nil
end
