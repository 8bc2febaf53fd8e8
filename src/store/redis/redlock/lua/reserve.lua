#!lua
-- Reserve: the first round of an acquire at one node of a quorum. Takes the free lock for one try, and
-- proposes a fence.
--
-- KEYS
--   1  lock    string: the hash of the holder's token
--   2  info    hash: the lease record
--   3  ended   zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence   string: the fence counter of the slot
--   5  wanted  string: there if a gateway wants to be woken
--   6  node    hash: what this node has learnt, and in which life
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  the nonce of this try
--   3  ttl in ms
--   4  hold limit in ms, or empty
--   5  owner, or empty
--   6  metadata as JSON, or empty
--   7  the hash of the idempotency key, or empty
--   8  the fingerprint of the request, or empty
--   9  the salt of the token, or empty
--  10  for how many ms the gateway wants to be woken when the lock becomes free, or empty
--  11  for how many ms the lease lasts if it is not delivered, or empty
--  12  1 to take the lock if it is free, 0 only to ask; a larger number is the fence with which a majority has
--      granted the lease to this try already, and the lock is taken here, too
--  13  the run of this server, or empty if no run of it forgets
--  14  for how many ms a node has no vote after it was found without its data
--  15  1 if the gateway wants to be woken for as long as ARGV 10 even if the lock is reserved, for other waiters
--  16  how many ms ago the lease began; 0 if it is not granted yet
-- Reply
--   {reserved, ARGV 2, the fence that is proposed, the vote}
--   {unlearnt, ARGV 2}                    the node has no vote until it has learnt the largest fence
--   {delayed, ARGV 2, ms}                 the node was found without its data, and has no vote for so long
--   {free, ARGV 2}                        the lock is free, and the try did not ask to take it
--   {again, ARGV 2}                       the attempt has the lock already, by this try or an earlier one
--   {replay, ARGV 2, token}               the lease of this token lives under the idempotency key
--   {held, ARGV 2, token, lease ..}       another attempt has the lock
--   {foreign, ARGV 2, ms left, mark}      a foreign client has the lock; -1: without an expiry
--   {mismatch | expired | replaced | withdrawn, ARGV 2}  the attempt or the try is refused
--   {clock, ARGV 2, seconds}              the time of this node is impossible
--   {counter | exhausted, ARGV 2}         the fence counter is no number, or at its end
--   {layout, ARGV 2, version}             the record is not of this layout
-- Replay
--   Answers `again`. A try that was withdrawn is refused, however late a copy arrives.
-- Clock
--   TIME of this node, once. Lock and record expire at one instant.
-- Cluster
--   Never on a cluster: key 6 has none of the slots of the other keys.
-- Cost
--   O(log n) in the number of memories of this name.

local lock, info, ended, counter, wanted, node =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, nonce, key = ARGV[1], ARGV[2], ARGV[7]

-- import time
-- import vote
-- import record
-- import memory
-- import recipient
-- import lease_reply
-- import propose

-- The fence in a lease record before the second round has named a fence. ARGV 12 of a try has this value; no fence is
-- as small.
local UNRATIFIED = '1'

local held = redis.call('GET', lock)
local record, layout = read_record(info, 'idem', 'finger', 'lead', unpack(TOLD))
if layout then
  return { 'layout', nonce, layout }
end
local now, us = instants(redis.call('TIME'))
local vote = read_vote(ARGV[13])
if not vote then
  return { 'unlearnt', nonce }
end
if vote.found and ARGV[14] ~= '0' then
  if now < vote.found then
    -- The clock of this node was set back, so the time since the node was found without its data is not known any more,
    -- and begins again.
    redis.call('HSET', node, 'found', now)
    vote.found = now
  end
  local left = vote.found + ARGV[14] - now
  if left > 0 then
    return { 'delayed', nonce, left }
  end
end
if remembers(ended, 'n:' .. nonce, now) or remembers(ended, 'g:' .. token, now) then
  return { 'withdrawn', nonce }
end
local left = held and redis.call('PTTL', lock)
local ours = held and left >= 0 and record and record[2] == held and record
if ours and held == token then
  -- A newer request under the same idempotency key may have been answered the lease meanwhile, and is its recipient.
  local replaced = key ~= '' and recipient_of(token) ~= token
  return { replaced and 'replaced' or 'again', nonce }
end
if key ~= '' then
  if ours and ours[3] == key then
    if ours[4] ~= ARGV[8] then
      return { 'mismatch', nonce }
    end
    if ours[6] ~= UNRATIFIED then
      return { 'replay', nonce, held }
    end
  elseif remembers(ended, 'k:' .. key, now) then
    return { 'expired', nonce }
  end
end
if held then
  if ARGV[10] ~= '' then
    redis.call('SET', wanted, '1', 'PX', ARGV[10])
  end
  if not ours then
    return { 'foreign', nonce, left, redis.sha1hex(held) }
  end
  -- The time left counts from the beginning of the lease, not from when this node took part in the lease.
  left = math.max(0, left - (tonumber(ours[5]) or 0))
  return tell({ 'held', nonce, held }, ours, 6, left, now)
end
local fence, why = propose(redis.call('GET', counter), vote.top, us)
if not fence then
  return { why, nonce, math.floor(us / 1000000) }
end
if ARGV[12] == '0' then
  return { 'free', nonce }
end

local provisional = ARGV[11] ~= ''
local began = now - ARGV[16]
local expiry = began + (provisional and ARGV[11] or ARGV[3])
local fields = {
  'v', LAYOUT, 'lock', token, 'nonce', nonce, 'fence', ARGV[12], 'ttl', ARGV[3], 'acquired', began,
}
local function also(name, value)
  if value ~= '' then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
if ARGV[4] ~= '' and not provisional then
  expiry = math.min(expiry, began + ARGV[4])
  also('hold', began + ARGV[4])
end
also('limit', provisional and ARGV[4] or '')
also('owner', ARGV[5])
also('metadata', ARGV[6])
also('idem', key)
also('finger', ARGV[8])
also('salt', ARGV[9])
also('returnable', key ~= '' and '1' or '')
also('provisional', provisional and '1' or '')
-- The first end of the lease, in ms: if the lease lasts longer than this, it was renewed.
also('first', string.format('%.0f', expiry))
-- The counter comes first and the lock last: if a command fails half-way, the lock is free. Here Lua makes text of
-- numbers, and writes all digits only with this format.
redis.call('SET', counter, string.format('%.0f', fence))
if record then
  redis.call('DEL', info)
end
redis.call('HSET', info, unpack(fields))
local until_then = string.format('%.0f', expiry)
redis.call('PEXPIREAT', info, until_then)
if ARGV[15] == '1' then
  redis.call('SET', wanted, '1', 'PX', ARGV[10])
end
redis.call('SET', lock, token, 'PXAT', until_then)
return { 'reserved', nonce, fence, vote.name }
