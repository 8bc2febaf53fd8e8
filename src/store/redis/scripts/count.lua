#!lua flags=allow-oom
-- Count: tells how many wait for a lock that a list shows.
--
-- KEYS
--   1  lock  string: the lease, or what a foreign client has written; names the other keys of the lock
--   2  wait  list: the ids of those who wait
-- ARGV
--   1  of how many, from the first on, it is looked up whether their time is over
-- Reply
--   counted KEYS 2: how many
-- Replay
--   Looks again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(m) for the m that are looked up.

local name, wait = string.sub(KEYS[1], 1, -5), KEYS[2]

-- import clock
-- import field
-- import lease

-- What is of another type must not keep the others on the page from being shown.
local ids = redis.pcall('LRANGE', wait, '0', ARGV[1] - 1)
if ids.err or #ids == 0 then
  return 'counted ' .. wait .. ' 1:0'
end
local us, over = clock(), 0
for _, id in ipairs(ids) do
  -- The head of a ticket: what it is to be granted with may be long.
  local body = redis.pcall('GETRANGE', name .. 'of:' .. id, ticket_range('state', 'keeper'))
  if not is_queued(body) or ticket_ends(body) <= us then
    over = over + 1
  end
end
return 'counted ' .. wait .. ' ' .. field(redis.call('LLEN', wait) - over)
