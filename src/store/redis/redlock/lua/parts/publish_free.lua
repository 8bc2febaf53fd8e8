-- Wakes those who wait for a lock that has become free at this node. The script that imports it names
-- the keys `lock` and `wanted`.

-- One message to all gateways, if any of them has been refused here lately. That it cannot be sent is no
-- reason to fail: whoever waits asks again.
local function wake()
  if redis.call('DEL', wanted) == 1 then
    redis.pcall('PUBLISH', 'lg:gw:all', 'free ' .. string.sub(lock, #'lg:{' + 1, -1 - #'}:lock'))
  end
end
