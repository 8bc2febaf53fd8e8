#!lua flags=allow-oom
-- Inspect: shows the holder and the waiters of a lock.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value
--   2  wait  list: the ids of the waiters
-- ARGV
--   1  how many waiters are shown
-- Reply
--   shown KEYS 1: queue (each ticket ..), time, what the lock remembers of orders or empty, time,
--                 contention ..
-- Replay
--   Reads the lock again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(m) for the m waiters that are shown and leases that share the lock.

local lock, wait = KEYS[1], KEYS[2]
local name = string.sub(lock, 1, -5)

-- import clock
-- import field
-- import lease
-- import shared
-- import contention

local seen, us = redis.call('MGET', lock, name .. 'order'), clock()
-- MGET reads a key of another type as nothing, so GET ends the script here for such a key.
local held = seen[1] or redis.call('GET', lock)
local ids, over, shown = redis.call('LRANGE', wait, '0', ARGV[1] - 1), 0, {}
if #ids > 0 then
  local bodies = {}
  for i, id in ipairs(ids) do
    bodies[i] = name .. 'of:' .. id
  end
  for _, body in ipairs(redis.call('MGET', unpack(bodies))) do
    if is_queued(body) and ticket_ends(body) > us then
      shown[#shown + 1] = field(body)
    else
      -- The waiter has left a long queue, or has died with its gateway, so it does not count.
      over = over + 1
    end
  end
end
return 'shown ' .. lock .. ' ' .. field(table.concat(shown)) .. '16:' .. us .. field(seen[2] or '') .. '16:' .. us
  .. contention(redis.call('LLEN', wait) - over, held, us, SHOWN_HOLDERS)
