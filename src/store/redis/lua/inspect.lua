#!lua flags=allow-oom
-- Inspect: shows who holds the lock and who waits for it.
--
-- KEYS
--   1  lock     string: the hash of the holder's token
--   2  info     hash: the lease record
--   3  queue    zset: the tickets by their order
--   4  waiters  hash: the record of each ticket
-- ARGV
--   1  how many of those who wait are shown
-- Reply
--   {shown, KEYS 1, {owner, ms waited, owner, ms waited ..}, contention ..}
--   {layout, KEYS 1, version}  the record is not of this layout
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(log n) in the number of tickets, and O(m) for the m that are shown.

local lock, info, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- import time
-- import record
-- import tell
-- import waiter
-- import mark
-- import contend

local _, layout = read_record(info)
if layout then
  return { 'layout', lock, layout }
end
local now = instants(redis.call('TIME'))
local shown, over = {}, 0
local tickets = redis.call('ZRANGE', queue, 0, ARGV[1] - 1)
if #tickets > 0 then
  for _, text in ipairs(redis.call('HMGET', waiters, unpack(tickets))) do
    local waiter = read_waiter(text)
    if waiter and waiter.ends <= now then
      -- Its gateway has died, or would have taken it out.
      over = over + 1
    else
      shown[#shown + 1] = waiter and waiter.owner or ''
      shown[#shown + 1] = waiter and math.max(0, now - waiter.queued) or 0
    end
  end
end
return contend({ 'shown', lock, shown }, now, over)
