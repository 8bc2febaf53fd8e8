-- Tells how a lease ended that is not there any more. The script that imports it names `name`.

-- `broken `, or `overdue ` if the time is over until which its holder was asked to release it; else nothing.
local function ended_by_force(id, us)
  local asked = name .. 'asked:' .. id
  if redis.call('GET', name .. 'of:' .. id) == 'b' then
    return 'broken '
  end
  local ends = redis.call('GET', asked)
  return ends and ends <= us and 'overdue ' or nil
end
