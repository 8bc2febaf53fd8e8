-- Reads and writes what the queue keeps of a ticket. The script that imports it names the keys `queue`
-- and `waiters`.
--
-- The queue is a sorted set of tickets by their order, and a hash with a record for each. The ticket
-- is the hash of the attempt's token. The hash also leads from an idempotency key (`k:..`) to the
-- ticket that was queued with it.

-- How much longer than its wait a ticket counts: it leaves by itself, and that may take a resend.
local SLACK = 5000

local WAITER = '^1\n(%x*)\n(%d+)\n(%d+)\n([01])\n(%d+)\n(%d*)\n(%x*)\n(%x*)\n(%x*)\n([^\n]*)\n(.*)$'

-- Reads the record of a ticket. Second result: it is of a later layout, to be left alone. What is
-- no record at all counts as none.
local function read_waiter(text)
  if not text then
    return nil, false
  end
  local gateway, ends, queued, late, ttl, hold, key, finger, salt, owner, metadata =
    string.match(text, WAITER)
  if not gateway then
    return nil, string.match(text, '^%d+\n') ~= nil
  end
  return {
    gateway = gateway, ends = tonumber(ends), queued = tonumber(queued), late = late, ttl = ttl,
    hold = hold, key = key, finger = finger, salt = salt, owner = owner, metadata = metadata,
  }, false
end

-- Here a number becomes text by Lua, which needs to be told to write all digits.
local function write_waiter(waiter)
  return string.format(
    '1\n%s\n%.0f\n%.0f\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s', waiter.gateway, waiter.ends,
    waiter.queued, waiter.late, waiter.ttl, waiter.hold, waiter.key, waiter.finger, waiter.salt,
    waiter.owner, waiter.metadata
  )
end

-- Takes tickets, and what leads to them from a key, out of the queue. Redis does not refuse this
-- when it is out of memory.
local function take_out(tokens, keys)
  for i = #tokens, 1, -1 do
    keys[#keys + 1] = tokens[i]
  end
  redis.call('ZREM', queue, unpack(tokens))
  redis.call('HDEL', waiters, unpack(keys))
end

-- By how much longer than asked for the queue is kept, so that not every ticket moves its expiry.
local AHEAD = 1000

-- Keeps the queue at least until an instant.
local function outlive(now, ends)
  if now + redis.call('PTTL', queue) < ends then
    redis.call('PEXPIREAT', queue, ends + AHEAD)
    redis.call('PEXPIREAT', waiters, ends + AHEAD)
  end
end
