-- Remembers the end of a lease or of an attempt, in the set that is called `ended`.

-- How many outdated memories one script clears away: bounded, and more than one script adds. So those
-- that count are all that pile up, and each counts for a minute: of leases that have ended there are
-- as many as ended in the last minute, one or two memories each. Only of a lease whose acquire had to
-- be sent again, or whose holder was asked to release it, the memory counts for a minute from the end that it had then.
local SWEEP = 16

-- Whether a member of the memories still counts.
local function remembers(ended, member, now)
  local score = redis.call('ZSCORE', ended, member)
  return score and tonumber(score) > now
end

-- Whether the time is over until which the holder of a lease was asked to release it. That is remembered from then on,
-- for so many ms.
local function is_overdue(ended, token, now, tombstone)
  local score = redis.call('ZSCORE', ended, 'q:' .. token)
  return score and tonumber(score) > now and score - tombstone <= now
end

-- Remembers members until the instants before them. Its first write is a ZREM, which Redis does not
-- refuse when it is out of memory; what follows a write is not refused any more.
local function remember(ended, now, ...)
  local outdated = redis.call('ZRANGE', ended, '-inf', now, 'BYSCORE', 'LIMIT', 0, SWEEP)
  redis.call('ZREM', ended, '', unpack(outdated))
  redis.call('ZADD', ended, ...)
  local last = redis.call('ZRANGE', ended, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', ended, tonumber(last[2]))
end
