#!lua flags=allow-oom
-- Break, at one node of a quorum: ends the lease or foreign value that has the lock here, if it is the target.
--
-- KEYS
--   1  lock    string: the hash of the holder's token
--   2  info    hash: the lease record
--   3  ended   zset: what is remembered of ended leases, by the instant until which it counts
--   4  wanted  string: there if a gateway wants to be woken
-- ARGV
--   1  a nonce, which is the identity of this break
--   2  how long to remember an end, in ms
--   3  the hash of the token of the lease that is the target, or empty
--   4  the mark of the foreign value that is the target, or empty
--   5  1 if an earlier copy of this command may still arrive, else 0
-- Reply
--   {broken, ARGV 1}
--   {ended, ARGV 1}            another break has ended the target lease here
--   {changed, ARGV 1}          another holder has the lock here, or none
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Answers `broken` again, and does not touch the holder that the lock has by then. A token is of one lease
--   only. A foreign value may come back, so a copy that found another value keeps earlier copies from doing
--   anything.
-- Clock
--   TIME of this node, once.
-- Cluster
--   All keys carry the name as hash tag.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, wanted = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local nonce = ARGV[1]

-- import time
-- import record
-- import memory
-- import publish_free

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'provisional')
if layout then
  return { 'layout', nonce, layout }
end
local now = instants(redis.call('TIME'))
if remembers(ended, 'x:' .. nonce, now) then
  return { 'broken', nonce }
end
if remembers(ended, 'y:' .. nonce, now) then
  return { 'changed', nonce }
end
local ours = held and record and record[2] == held and redis.call('PTTL', lock) >= 0 and record
local meant
if ours then
  meant = held == ARGV[3]
else
  meant = held and redis.sha1hex(held) == ARGV[4]
end
local forget = now + ARGV[2]
if not meant then
  local ends = {}
  local ended_before = ARGV[3] ~= '' and remembers(ended, 'e:' .. ARGV[3], now)
  if ARGV[3] ~= '' then
    -- This node also tells the holder of the lease that the lease was broken, and a late copy of its acquire takes
    -- nothing.
    ends = { forget, 'b:' .. ARGV[3], forget, 'g:' .. ARGV[3] }
  end
  if ARGV[5] == '1' then
    ends[#ends + 1], ends[#ends + 2] = forget, 'y:' .. nonce
  end
  if ends[1] then
    remember(ended, now, unpack(ends))
  end
  return { ended_before and 'ended' or 'changed', nonce }
end
local ends = { forget, 'x:' .. nonce }
if ours then
  ends[3], ends[4], ends[5], ends[6] = forget, 'b:' .. held, forget, 'e:' .. held
  if not ours[4] then
    -- The lease was delivered: a copy of its acquire that is still on its way must not take the lock again, and its
    -- idempotency key is used.
    ends[7], ends[8] = forget, 'g:' .. held
    if ours[3] then
      ends[9], ends[10] = forget, 'k:' .. ours[3]
    end
  end
end
remember(ended, now, unpack(ends))
redis.call('DEL', lock, info)
if ours then
  -- The message tells the recipient of the lease, at any gateway, of the break now, and not with its next renewal.
  redis.pcall('PUBLISH', 'lg:gw:all', 'broken ' .. held .. ' ' .. string.sub(lock, #'lg:{' + 1, -1 - #'}:lock'))
end
wake()
return { 'broken', nonce }
