#!lua flags=allow-oom
-- Ask, at one node of a quorum: requests the release of a lease, which then ends here soon after the time given for it.
--
-- KEYS
--   1  lock    string: the hash of the holder's token
--   2  info    hash: the lease record
--   3  ended   zset: what is remembered of ended leases, by the instant until which it counts
-- ARGV
--   1  the hash of the token of the lease that is meant
--   2  how much time the holder has for the release, in ms
--   3  who requests the release, and why: text that only gateways read
--   4  how long to remember an end, in ms
-- Reply
--   {asked, ARGV 1}
--   {changed, ARGV 1}          another holder has the lock here, or none
--   {layout, ARGV 1, version}  the record is not of this layout
-- Replay
--   Requests the release again. A request whose end is not the earliest changes nothing, and no request makes a lease
--   last longer.
-- Clock
--   TIME of this node, once.
-- Cluster
--   None: a node of a quorum is in no cluster.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

-- import time
-- import record
-- import memory

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'asked')
if layout then
  return { 'layout', token, layout }
end
local left = redis.call('PTTL', lock)
if held ~= token or not record or record[2] ~= token or left < 0 then
  return { 'changed', token }
end
local now = instants(redis.call('TIME'))
local told = now + ARGV[2]
-- The gateway that requests the release breaks the lease in time, unless that gateway has died.
local ends = told + 1000
local before = record[3] and tonumber(request_ends(record[3]))
if not before or before > told then
  -- The first write of the script is a command that Redis does not refuse when it is out of memory.
  local expiry = string.format('%.0f', math.min(now + left, ends))
  redis.call('PEXPIREAT', lock, expiry)
  redis.call('PEXPIREAT', info, expiry)
  redis.call('HSET', info, 'asked', string.format('%016.0f', told) .. ARGV[3])
  -- A caller with the token of the lease is told of the request when the lease has ended after that time.
  remember(ended, now, told + ARGV[4], 'q:' .. token)
  -- The message tells the recipient of the lease, at any gateway, of the request now, and not with its next renewal.
  redis.pcall('PUBLISH', 'lg:gw:all', 'broken ' .. token .. ' ' .. string.sub(lock, #'lg:{' + 1, -1 - #'}:lock'))
end
return { 'asked', token }
