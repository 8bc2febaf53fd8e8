-- What every script below it may call: how a lease record is read, and how the end of a lease is
-- remembered. It is prepended to each script, touches only the keys it is given, and runs nothing
-- by itself.

-- The layout of the record that this version reads and writes.
local LAYOUT = '1'
-- How many outdated memories one script clears away: bounded, and more than one script adds.
local SWEEP = 16

-- Redis turns numbers into text with an exponent; a fence and an instant need all their digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- The fields `v`, `lock` and the named ones of a lease record; nothing if there is no record. What
-- is not a record of this layout comes as a second result, to be answered and left alone.
local function read_record(info, ...)
  local fields = redis.call('HMGET', info, 'v', 'lock', ...)
  if fields[1] == LAYOUT then
    return fields, false
  end
  if not fields[1] and redis.call('HLEN', info) == 0 then
    return nil, false
  end
  return nil, fields[1] or ''
end

-- The milliseconds and the microseconds of a TIME.
local function instants(time)
  local us = time[1] * 1000000 + time[2]
  return math.floor(us / 1000), us
end

-- Whether a member of the memories still counts.
local function remembers(ended, member, now)
  local score = redis.call('ZSCORE', ended, member)
  return score and tonumber(score) > now
end

-- Remembers members until the instants before them. Its first write is a ZREM, which Redis does not
-- refuse when it is out of memory; what follows a write is not refused any more.
local function remember(ended, now, ...)
  local outdated = redis.call('ZRANGE', ended, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, SWEEP)
  redis.call('ZREM', ended, '', unpack(outdated))
  redis.call('ZADD', ended, ...)
  local last = redis.call('ZRANGE', ended, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', ended, digits(tonumber(last[2])))
end

-- Who keeps the living lease of a token: until it is adopted, the attempt that it was granted to.
local function keeper_of(info, token)
  return redis.call('HMGET', info, 'keeper')[1] or token
end

-- Makes somebody the keeper of a living lease. Not one that was its keeper before: that is a late copy
-- of a command, and whoever came after it goes on. Its first write is that of `remember`.
local function adopt(info, ended, token, keeper, now, forget)
  local before = keeper_of(info, token)
  if before == keeper then
    return true
  end
  if remembers(ended, 'a:' .. keeper, now) then
    return false
  end
  remember(ended, now, forget, 'a:' .. before)
  redis.call('HSET', info, 'keeper', keeper)
  return true
end

-- The fields of a record that a lease is told from, in the order in which `tell` takes them.
local TOLD = { 'fence', 'ttl', 'acquired', 'hold', 'owner', 'metadata' }

-- Appends a lease to a reply: fence, ttl, what is left, how long held, what is left until the hold
-- limit (-1: none), owner, metadata. `first` is where the fields of TOLD begin.
local function tell(reply, fields, first, left, now)
  local hold = tonumber(fields[first + 3])
  for _, told in ipairs({
    tonumber(fields[first]), tonumber(fields[first + 1]), left,
    math.max(0, now - (tonumber(fields[first + 2]) or now)), hold and math.max(0, hold - now) or -1,
    fields[first + 4] or '', fields[first + 5] or '',
  }) do
    reply[#reply + 1] = told
  end
  return reply
end

-- Makes the living lease last its full TTL from now. A grant that was provisional becomes one that
-- was heard of: it counts from now, and its idempotency key is used. That it was heard of is noted:
-- other news of the grant may still be on their way, and find nobody who waits for them.
local function settle(at, token, now)
  local fields = redis.call('HMGET', at.info, 'ttl', 'hold', 'idem', 'provisional', 'limit', 'late')
  redis.call('ZSCORE', at.ended, '')
  local hold = tonumber(fields[2]) or fields[5] and now + fields[5] or math.huge
  local expiry = math.min(now + fields[1], hold)
  -- The first write is one that Redis does not refuse when it is out of memory.
  redis.call('PEXPIREAT', at.lock, digits(expiry))
  redis.call('PEXPIREAT', at.info, digits(expiry))
  redis.call('HSET', at.info, 'heard', '1')
  if fields[4] then
    redis.call('HSET', at.info, 'acquired', digits(now))
    if fields[5] then
      redis.call('HSET', at.info, 'hold', digits(hold))
    end
    redis.call('HDEL', at.info, 'provisional', 'limit', 'late')
  end
  local forget = digits(expiry + at.tombstone)
  if fields[3] then
    remember(at.ended, now, forget, 'k:' .. fields[3])
  end
  if fields[6] then
    remember(at.ended, now, forget, 'g:' .. token)
  end
  return expiry - now
end
