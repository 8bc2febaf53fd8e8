#!lua flags=allow-oom
-- Lapse: takes a place out of the queue that was kept for a request which has not come.
--
-- KEYS
--   1  lock  string: the lease, or what a foreign client has written; names the other keys of the lock
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the id of the gateway that kept it: where this server has not heard that it did, the place is of that one still
-- Reply
--   lapsed ARGV 1: 1 if the lock is shared
--   kept ARGV 1:    it is kept for longer, somebody stands there, or it is gone
-- Replay
--   Has lapsed already.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   O(n) in the number of those who wait before it.

local id = ARGV[1]
local name = string.sub(KEYS[1], 1, -5)
local of, wait = name .. 'of:' .. id, name .. 'wait'

-- import clock
-- import lease

local body = redis.call('GET', of)
local gateway = is_ticket(body) and ticket_gateway(body)
if gateway ~= ARGV[2] and (gateway ~= NO_GATEWAY or ticket_ends(body) > clock()) then
  return 'kept ' .. id .. ' '
end
if is_queued(body) then
  redis.call('LREM', wait, '1', id)
end
if ticket_late_is(body, '1') then
  -- A copy of its acquire that is still on its way must not queue it again.
  redis.call('SET', of, 'g', 'PX', 'TOMBSTONE')
else
  redis.call('DEL', of)
end
-- A newer request may stand under its key by now.
local used = name .. 'key:' .. ticket_key(body)
if redis.pcall('GET', used) == 'q' .. id then
  redis.call('DEL', used)
end
-- It may have been the head, and kept those behind it from sharing the lock.
return 'lapsed ' .. id .. ' ' .. (is_shared(redis.pcall('GETRANGE', KEYS[1], '0', #SHARED)) and '1:1' or '1:0')
