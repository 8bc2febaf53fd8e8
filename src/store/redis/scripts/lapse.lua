#!lua flags=allow-oom
-- Lapse: removes a kept position from the queue after its caller has not come back in time.
--
-- KEYS
--   1  lock  string: the lease, or a foreign value; names the other keys of the lock
-- ARGV
--   1  the id of the attempt: '2' and the hash of its token
--   2  the id of the gateway that kept the position: if this server missed that, the ticket still has this gateway
-- Reply
--   lapsed ARGV 1: 1 if the lock is shared
--   kept ARGV 1:    the position is kept for longer, was taken over by another request, or is gone
-- Replay
--   Answers `kept`: the position is gone.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   O(n) in the number of waiters before the position.

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
  -- Without the letter `g` in `:of:ID`, a late copy of the acquire would queue the attempt again.
  redis.call('SET', of, 'g', 'PX', 'TOMBSTONE')
else
  redis.call('DEL', of)
end
-- The idempotency key may lead to a newer request by now, and is then not deleted.
local used = name .. 'key:' .. ticket_key(body)
if redis.pcall('GET', used) == 'q' .. id then
  redis.call('DEL', used)
end
-- The position may have been the head, and have kept the waiters behind it from sharing the lock. The caller needs to
-- know whether the lock is shared.
return 'lapsed ' .. id .. ' ' .. (is_shared(redis.pcall('GETRANGE', KEYS[1], '0', #SHARED)) and '1:1' or '1:0')
