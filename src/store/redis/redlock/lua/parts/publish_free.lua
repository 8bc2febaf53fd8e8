-- Wakes gateways that wait for a lock which has become free at this node. The script that imports this part names the
-- keys `lock` and `wanted`.

-- Sends one message to all gateways, if this node has refused the lock to a gateway lately. If the message cannot be
-- sent, the script does not fail, because gateways with waiters ask again.
local function wake()
  if redis.call('DEL', wanted) == 1 then
    redis.pcall('PUBLISH', 'lg:gw:all', 'free ' .. string.sub(lock, #'lg:{' + 1, -1 - #'}:lock'))
  end
end
