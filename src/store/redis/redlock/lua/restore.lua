#!lua
-- Restore, at one node of a quorum: takes a lease again that a recipient has released here, because this node did not
-- know that the lease had been answered again. A majority knows, and keeps the lease.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence  string: the fence counter of the slot
-- ARGV
--   1  the hash of the token
--   2  the recipient that has released the lease here
--   3  how many ms were left of the lease when it was released here
--   4  how long an end is remembered, in ms
--   5  the record of the lease at a node that keeps it, with the instant of that node at which it was read
-- Reply
--   {restored, ARGV 1}
--   {taken, ARGV 1}            another holder has the lock here at present
--   {refused, ARGV 1}          no release of the lease is remembered here (yet), or a later end of it; or its time is
--                              over; or this node has not accepted its fence
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Answers `refused`: a release of one recipient is undone once. A copy that arrives after the last recipient has
--   released the lease, or after a break, is refused too.
-- Clock
--   TIME of this node, once. The time that is left counts from the release here, so a late copy does not make the lease
--   last longer.
-- Cluster
--   Never on a cluster: the nodes of a quorum are in none.
-- Cost
--   O(log n) in the number of memories of this name.

local lock, info, ended, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, tombstone = ARGV[1], ARGV[4]

-- import time
-- import record
-- import memory
-- import copied

local held = redis.call('GET', lock)
local _, layout = read_record(info)
if layout then
  return { 'layout', token, layout }
end
local now = instants(redis.call('TIME'))
-- A node that has lost its data since remembers no release, and must not take part in the lease again.
local memory = redis.call('ZSCORE', ended, 'r:' .. token)
local released = memory and memory - tombstone
local expiry = released and released + ARGV[3]
if not expiry or expiry <= now or held == token or remembers(ended, 'g:' .. token, now) then
  return { 'refused', token }
end
-- The release that is remembered is not that of this recipient but a later one: the lease was restored here before.
-- Without this, the copy of a repeated release would bring the lease back after its last recipient has released it.
if remembers(ended, 'a:' .. ARGV[2], now) then
  return { 'refused', token }
end
if held then
  return { 'taken', token }
end
local copy = cmsgpack.unpack(ARGV[5])
local record, fields = {}, {}
for n, name in ipairs(COPIED) do
  record[name] = copy[n + 1]
end
if (tonumber(redis.call('GET', counter)) or 0) < tonumber(record.fence) then
  return { 'refused', token }
end
-- Instants are of the clock of the other node, which may differ from that of this node.
local shift = released - copy[1]
local function shifted(instant)
  return instant and string.format('%016.0f', instant + shift)
end
record.acquired, record.hold = shifted(record.acquired), shifted(record.hold)
local asked = record.asked
if asked then
  local ends = shifted(request_ends(asked))
  record.asked = request_with(asked, { ends = ends })
end
for name, value in pairs(record) do
  if value then
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
end
redis.call('DEL', info)
redis.call('HSET', info, unpack(fields))
local until_then = string.format('%.0f', expiry)
redis.call('PEXPIREAT', info, until_then)
-- The recipient that released the lease does not keep it any more: a late copy of its adoption is refused here, and so
-- is another copy of this command.
remember(ended, now, expiry + tombstone, 'a:' .. ARGV[2], expiry + tombstone, 'k:' .. record.idem)
redis.call('ZREM', ended, 'r:' .. token)
redis.call('SET', lock, token, 'PXAT', until_then)
return { 'restored', token }
