-- Clears dead tickets out of the queue. The script that imports it names the keys `name` and `wait`.

-- Takes the dead out of so many places, from an index on, and answers how many they were. O(n) in the length
-- of the queue, but for each place it is a single command of Redis.
local function sweep(from, places, us)
  local dead = 0
  for i, ticket in ipairs(redis.call('LRANGE', wait, from, from + places - 1)) do
    -- As much of it as it takes to judge and to bury it: what it is to be granted with may be long.
    local body = redis.call('GETRANGE', name .. 'of:' .. ticket, '0', '217')
    if not lives(body, us) then
      dead = dead + 1
      redis.call('LSET', wait, from + i - 1, 'dead')
      redis.call('DEL', name .. 'of:' .. ticket)
      if body ~= '' then
        bury(ticket, body)
      end
    end
  end
  if dead > 0 then
    redis.call('LREM', wait, dead, 'dead')
  end
  return dead
end
