-- Acquire: grants the lock to an attempt if it is free.
--
-- KEYS
--   1  lock   string: the hash of the holder's token
--   2  info   hash: the lease record
--   3  ended  zset: what is remembered of ended leases, by the instant until which it counts
--   4  fence  string: the fence counter of the slot
-- ARGV
--   1  the hash of the token, which is the identity of the attempt
--   2  ttl in ms
--   3  hold limit in ms, or empty
--   4  owner, or empty
--   5  metadata as JSON, or empty
--   6  the highest fence that the gateway has seen in this slot
--   7  how long to remember an end, in ms
--   8  1 if an earlier copy of this command may still arrive, else 0
--   9  the hash of the idempotency key, or empty
--  10  the fingerprint of the request, or empty
--  11  the salt of the token, or empty
-- Reply
--   {granted, ARGV 1, fence, ms until the hold limit or -1}
--   {again, ARGV 1, lease ..}         this attempt holds the lock already
--   {replayed, ARGV 1, lease .., salt}  the lease that lives under the idempotency key
--   {held, ARGV 1, lease ..}          somebody else holds it
--   {foreign, ARGV 1, pttl}           a client that is no gateway holds it
--   {mismatch | expired | withdrawn | exhausted, ARGV 1}
--   {clock, ARGV 1, seconds}          the time is impossible
--   {layout, ARGV 1, version}         the record is not of this layout
--   {counter, ARGV 1}                 the fence counter is no number
-- Replay
--   The attempt that holds the lock is answered its lease again; an attempt that was given back, or
--   whose lease has ended after an earlier copy was outstanding, is refused.
-- Clock
--   TIME of this Redis, once. Lock and record expire at one instant.
-- Cluster
--   Keys 1 to 3 carry the name as hash tag, key 4 a tag of the same slot.
-- Cost
--   O(1), but for O(log n) in the number of memories of this name.

local lock, info, ended, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, key = ARGV[1], ARGV[9]

local held = redis.call('GET', lock)
local record, layout = nil, false
if held or redis.call('HLEN', info) > 0 then
  record, layout = read_record(info, 'idem', 'finger', 'salt', unpack(TOLD))
  if layout then
    return { 'layout', token, layout }
  end
end
local now, us = instants(redis.call('TIME'))
local keep = now + ARGV[7]

if held then
  local left = redis.call('PTTL', lock)
  local ours = record and record[2] == held and left >= 0
  if ours and held == token then
    if ARGV[8] == '1' then
      remember(ended, now, digits(left + keep), 'g:' .. token)
    end
    return tell('again', token, record, 6, left, now)
  end
  if ours and key ~= '' and record[3] == key then
    if record[4] ~= ARGV[10] then
      return { 'mismatch', token }
    end
    -- Its caller may have heard of it: from now on it is not given back.
    redis.call('HDEL', info, 'returnable')
    local reply = tell('replayed', token, record, 6, left, now)
    reply[10] = record[5]
    return reply
  end
  if key ~= '' and remembers(ended, 'k:' .. key, now) then
    return { 'expired', token }
  end
  if ours then
    return tell('held', token, record, 6, left, now)
  end
  return { 'foreign', token, left }
end

if remembers(ended, 'g:' .. token, now) then
  return { 'withdrawn', token }
end
if key ~= '' and remembers(ended, 'k:' .. key, now) then
  return { 'expired', token }
end

-- 2025-01-01 and 2200-01-01: outside, no fence may be made from the time.
if us < 1735689600000000 or us >= 7258118400000000 then
  return { 'clock', token, math.floor(us / 1000000) }
end
local last = redis.call('GET', counter)
if last and not string.match(last, '^%d+$') then
  return { 'counter', token }
end
local fence = math.max((tonumber(last) or 0) + 1, us, ARGV[6] + 1)
if fence > 9007199254740991 then
  return { 'exhausted', token }
end

-- Nothing was written so far. The lock comes last: if a command fails half-way, nobody holds it.
redis.call('SET', counter, digits(fence))
if record then
  redis.call('DEL', info)
end
local expiry, until_limit = now + ARGV[2], -1
local fields = {
  'v', LAYOUT, 'lock', token, 'fence', digits(fence), 'ttl', ARGV[2], 'acquired', digits(now),
}
if ARGV[3] ~= '' then
  until_limit = tonumber(ARGV[3])
  expiry = math.min(expiry, now + until_limit)
  fields[#fields + 1] = 'hold'
  fields[#fields + 1] = digits(now + until_limit)
end
if ARGV[4] ~= '' then
  fields[#fields + 1] = 'owner'
  fields[#fields + 1] = ARGV[4]
end
if ARGV[5] ~= '' then
  fields[#fields + 1] = 'metadata'
  fields[#fields + 1] = ARGV[5]
end
if key ~= '' then
  for _, field in ipairs({ 'idem', key, 'finger', ARGV[10], 'salt', ARGV[11], 'returnable', '1' }) do
    fields[#fields + 1] = field
  end
end
redis.call('HSET', info, unpack(fields))
redis.call('PEXPIREAT', info, digits(expiry))
local forget = digits(expiry + ARGV[7])
if key ~= '' then
  remember(ended, now, forget, 'k:' .. key)
end
if ARGV[8] == '1' then
  remember(ended, now, forget, 'g:' .. token)
end
redis.call('SET', lock, token, 'PXAT', digits(expiry))
return { 'granted', token, fence, until_limit }
