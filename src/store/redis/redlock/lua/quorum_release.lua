#!lua flags=allow-oom
-- Release, at one node of a quorum: ends a lease here.
--
-- KEYS
--   1  lock    string: the hash of the holder's token
--   2  info    hash: the lease record
--   3  ended   zset: what is remembered of ended leases, by the instant until which it counts
--   4  wanted  string: there if a gateway wants to be woken
-- ARGV
--   1  the hash of the token
--   2  how long to remember an end, in ms
--   3  the recipient that releases the lease, or empty
--   4  1 if another gateway has granted the lease: its end is remembered for that gateway; otherwise absent
-- Reply
--   {released, ARGV 1, fence, held}  the lease had this fence, and with ARGV 4 was held for this long, in ms; without
--                              both if an earlier copy has ended the lease
--   {adopted, ARGV 1, recipient, ms left, record}  this other recipient has adopted the lease and keeps it; with its
--                              record, from which `restore` makes a copy
--   {another | free, ARGV 1, 0 | 1}  the token does not hold the lock here; 1: another holder has it
--   {broken, ARGV 1, 0 | 1, 0 | 1}  its lease was broken; 1: another holder has the lock; 1: the lease
--                              was here, and a break has ended it
--   {overdue, ARGV 1, 0 | 1}   the time is over in which the lease had to be released on request; 1: another
--                              holder has the lock
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   A lease whose end is remembered is answered `released` again. Any other lease is not held any more.
-- Clock
--   TIME of this node, only where an end is remembered, or a record is copied.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, wanted = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]

-- import time
-- import record
-- import memory
-- import copied
-- import publish_free

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'recipient', 'asked', 'fence', 'acquired')
if layout then
  return { 'layout', token, layout }
end
if held ~= token then
  local now = instants(redis.call('TIME'))
  if remembers(ended, 'r:' .. token, now) then
    if ARGV[3] ~= token then
      -- Only the attempt that was granted the lease is sure not to be its last recipient. The last recipient ends the
      -- lease here too: a late copy of `restore` must not bring it back.
      remember(ended, now, now + ARGV[2], 'g:' .. token)
    end
    return { 'released', token }
  end
  if remembers(ended, 'b:' .. token, now) then
    return { 'broken', token, held and 1 or 0, remembers(ended, 'e:' .. token, now) and 1 or 0 }
  end
  return { is_overdue(ended, token, now, ARGV[2]) and 'overdue' or held and 'another' or 'free', token, held and 1 or 0 }
end
local ours = record and record[2] == token and record
local recipient = ours and ours[4] or token
if ARGV[3] ~= '' and recipient ~= ARGV[3] then
  local copy = { instants(redis.call('TIME')), unpack(redis.call('HMGET', info, unpack(COPIED))) }
  return { 'adopted', token, recipient, redis.call('PTTL', lock), cmsgpack.pack(copy) }
end
if ours and ours[5] then
  -- The holder was asked to release the lease, and releases it in time, so the request is forgotten.
  redis.call('ZREM', ended, 'q:' .. token)
end
local held_for
if ours and (ours[3] or ARGV[4]) then
  local now = instants(redis.call('TIME'))
  local forget = now + ARGV[2]
  remember(ended, now, forget, 'r:' .. token)
  if ours[3] then
    remember(ended, now, forget, 'k:' .. ours[3])
  end
  held_for = ARGV[4] and ours[7] and string.format('%.0f', math.max(0, now - ours[7]))
end
redis.call('DEL', lock, info)
wake()
return { 'released', token, ours and ours[6], held_for }
