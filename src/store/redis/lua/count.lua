#!lua flags=allow-oom
-- Count: tells how many wait for a lock that a list shows.
--
-- KEYS
--   1  queue    zset: the tickets by their order
--   2  waiters  hash: the record of each ticket
-- ARGV
--   1  of how many, from the first on, it is looked up whether their time is over
-- Reply
--   {counted, KEYS 1, how many}
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(log n) in the number of tickets, and O(m) for the m that are looked up.

local queue, waiters = KEYS[1], KEYS[2]

-- import time
-- import waiter

-- What is of another type must not keep the others on the page from being shown.
local tickets = redis.pcall('ZRANGE', queue, 0, ARGV[1] - 1)
if tickets.err or #tickets == 0 then
  return { 'counted', queue, 0 }
end
local now, over = instants(redis.call('TIME')), 0
local records = redis.pcall('HMGET', waiters, unpack(tickets))
if not records.err then
  for _, text in ipairs(records) do
    local waiter = read_waiter(text)
    if waiter and waiter.ends <= now then
      over = over + 1
    end
  end
end
return { 'counted', queue, redis.call('ZCARD', queue) - over }
