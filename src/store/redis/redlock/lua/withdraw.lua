#!lua flags=allow-oom
-- Withdraw: makes sure that a try, or a whole attempt, holds nothing at one node of a quorum, now or
-- later.
--
-- KEYS
--   1  lock    string: the hash of the holder's token
--   2  info    hash: the lease record
--   3  ended   zset: what is remembered of ended leases, by the instant until which it counts
--   4  wanted  string: there if a gateway wants to be woken
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  the nonce of the try to withdraw, or empty for the whole attempt
--   3  how long to remember an end, in ms
--   4  1 if the lease may have been delivered, so that its idempotency key is used, else 0
--   5  the recipient that knows that the lease was answered to no caller, or nothing
-- Reply
--   {given_back, ARGV 1}       its undelivered lease is released
--   {kept, ARGV 1}             its lease was adopted, or answered again under its idempotency key, or is
--                              of a later try and was renewed since
--   {nothing, ARGV 1}          the try, or the attempt, holds nothing here, and never will
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   The try, or the attempt, is refused for as long as its end is remembered.
-- Clock
--   TIME of this node, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, wanted = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, nonce = ARGV[1], ARGV[2]

-- By how many ms an instant may seem to differ when it is computed from the time left until then.
local JITTER = 2

-- The fence in a lease record before the second round has named a fence, as in `reserve`.
local UNRATIFIED = '1'

-- import time
-- import record
-- import memory
-- import recipient
-- import publish_free

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'nonce', 'idem', 'returnable', 'first', 'fence', 'asked')
if layout then
  return { 'layout', token, layout }
end
local now = instants(redis.call('TIME'))
local forget = now + ARGV[3]
local ended_now = nonce == '' and 'g:' .. token or 'n:' .. nonce
local ours = held == token and record and record[2] == token and record
if not ours or (nonce ~= '' and ours[3] ~= nonce) then
  remember(ended, now, forget, ended_now)
  return { 'nothing', token }
end
local key = ours[4]
if recipient_of(token) ~= (ARGV[5] or token) or (not ARGV[5] and key and not ours[5]) then
  return { 'kept', token }
end
-- If the lease was renewed, a try was granted: a try that was not granted is never renewed. So a later try was granted,
-- and counts this node among those that keep its lease.
if nonce ~= '' and ours[6] and now + redis.call('PTTL', lock) > ours[6] + JITTER then
  return { 'kept', token }
end
-- The lock is deleted last: if a command fails half-way, the lock is still held, and the withdrawal can be repeated.
if key and ARGV[4] == '1' then
  remember(ended, now, forget, ended_now, forget, 'k:' .. key)
else
  remember(ended, now, forget, ended_now)
  if key then
    redis.call('ZREM', ended, 'k:' .. key)
  end
end
if ours[8] then
  -- The holder was asked to release the lease, and this withdrawal ends it in time, so the request is forgotten.
  redis.call('ZREM', ended, 'q:' .. token)
end
redis.call('DEL', lock, info)
-- A gateway that was refused because of a failed try tries again after a pause that keeps gateways apart. If one
-- message woke all of these gateways, they would try at the same time again.
if nonce == '' or ours[7] ~= UNRATIFIED then
  wake()
end
return { 'given_back', token }
