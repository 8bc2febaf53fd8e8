-- Remembers the end of a lease or of an attempt, in the sorted set named `ended`.

-- How many outdated memories one script removes: bounded, and more than one script adds. So only memories that still
-- count pile up. Each counts for a minute, so there are as many as leases ended in the last minute, with one or two
-- memories each. Only if an acquire had to be sent again, or if a release was requested of the holder, the memory
-- counts for a minute from the end that the lease had then.
local SWEEP = 16

-- Whether a member of the memories in `ended` still counts.
local function remembers(ended, member, now)
  local score = redis.call('ZSCORE', ended, member)
  return score and tonumber(score) > now
end

-- Whether the time is over in which the holder had to release the lease on request. This is remembered for `tombstone`
-- ms after that time.
local function is_overdue(ended, token, now, tombstone)
  local score = redis.call('ZSCORE', ended, 'q:' .. token)
  return score and tonumber(score) > now and score - tombstone <= now
end

-- Remembers members until the instants before them. The first write is a ZREM, which Redis does not refuse when it is
-- out of memory; Redis does not refuse the commands after a first write.
local function remember(ended, now, ...)
  local outdated = redis.call('ZRANGE', ended, '-inf', now, 'BYSCORE', 'LIMIT', 0, SWEEP)
  redis.call('ZREM', ended, '', unpack(outdated))
  redis.call('ZADD', ended, ...)
  local last = redis.call('ZRANGE', ended, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', ended, tonumber(last[2]))
end
