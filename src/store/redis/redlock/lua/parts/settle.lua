-- Makes a grant last its full TTL. The script that imports this part imports `lease_reply` and `memory` before, and
-- names the keys `lock`, `info` and `ended`, and `tombstone`: how long an end is remembered, in ms.

-- Makes the living lease last its full TTL from now, and returns the time left; `nil` if the lease has ended. A
-- provisional grant becomes a delivered lease: its time counts from now, and its idempotency key counts as used.
local function settle(now)
  local fields = redis.call('HMGET', info, 'ttl', 'hold', 'idem', 'provisional', 'limit', 'asked')
  redis.call('ZSCORE', ended, '')
  local hold = tonumber(fields[2]) or fields[5] and now + fields[5] or math.huge
  local expiry = math.min(now + fields[1], hold, last_instant(fields[6]))
  if expiry <= now then
    -- The hold limit ends in this very millisecond, and Redis keeps the key until the next.
    redis.call('DEL', lock, info)
    return nil
  end
  -- The first write of the script is a command that Redis does not refuse when it is out of memory.
  redis.call('PEXPIREAT', lock, expiry)
  redis.call('PEXPIREAT', info, expiry)
  if fields[4] then
    redis.call('HSET', info, 'acquired', now)
    if fields[5] then
      redis.call('HSET', info, 'hold', hold)
    end
  end
  redis.call('HDEL', info, 'provisional', 'limit')
  if fields[3] then
    remember(ended, now, expiry + tombstone, 'k:' .. fields[3])
  end
  return expiry - now
end
