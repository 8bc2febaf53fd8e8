-- Tells what stands between an attempt and the lock. The script that imports it names the keys
-- `lock`, `info` and `queue`, and imports `mark`.

-- Appends how many wait, and who holds the lock for how long: by a record with its fields of TOLD
-- from `at` on, or otherwise.
local function tell_contention(reply, count, held, left, record, at, now)
  local n = #reply
  reply[n + 1] = count
  if not held then
    reply[n + 2] = 'passing'
  elseif not record or left < 0 then
    reply[n + 2] = 'foreign'
    reply[n + 3] = left
    reply[n + 4] = mark(held)
  else
    reply[n + 2] = 'held'
    return tell(reply, record, at, left, now)
  end
  return reply
end

-- The same for a script that has not read it yet. `over`: of how many tickets it is known that their time
-- is over.
local function contend(reply, now, over)
  local count, held = redis.call('ZCARD', queue) - (over or 0), redis.call('GET', lock)
  if not held then
    return tell_contention(reply, count, held)
  end
  local record = redis.call('HMGET', info, 'lock', unpack(TOLD))
  local left = redis.call('PTTL', lock)
  return tell_contention(reply, count, held, left, record[1] == held and record, 2, now)
end
