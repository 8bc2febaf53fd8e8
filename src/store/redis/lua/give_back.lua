-- Give back: makes sure that an attempt which nobody waits for any more holds nothing.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  how long to remember an end, in ms
-- Reply
--   {given_back, ARGV 1}
--   {kept, ARGV 1}             its lease was answered again under its idempotency key
--   {nothing, ARGV 1}          it holds nothing, and never will
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   The attempt is refused for as long as its end is remembered, however late a copy of its acquire
--   arrives.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'returnable')
if layout then
  return { 'layout', token, layout }
end
redis.call('ZSCORE', ended, '')
local now = instants(redis.call('TIME'))
local forget = digits(now + ARGV[2])
if held ~= token then
  remember(ended, now, forget, 'g:' .. token)
  return { 'nothing', token }
end

local key = record and record[2] == token and record[3]
if key and not record[4] then
  return { 'kept', token }
end
redis.call('DEL', lock, info)
if key then
  remember(ended, now, forget, 'g:' .. token, forget, 'k:' .. key)
else
  remember(ended, now, forget, 'g:' .. token)
end
return { 'given_back', token }
