#!lua
-- Record history: adds records to the histories of locks, and removes the oldest records of some.
--
-- KEYS
--   1  fence  string: the fence counter of the slot, which only names the slot
-- ARGV
--   1  the name of the first lock
--   2  how long records are kept, in ms
--   3  how many records of a lock are kept
--   4  the command that sets an expiry: PEXPIRE, or PEXPIREAT for a user that may not run PEXPIRE
--   5  the locks, with the byte 30 between them, each with these fields and the byte 31 between them:
--      the name of the lock;
--      what the keys of the histories begin with; empty for keys in the slot of the lock;
--      empty, or `~` and what to add to the counts: how many shorter leases, when the first of them ended, in ms, and how
--      many dropped records;
--      the records, with line feeds between them; one that begins with `?` is kept only if there is another record of
--      its lease
-- Reply
--   {recorded, ARGV 1}
-- Replay
--   Adds no record again, but adds to the counts again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   The sorted set is in the slot of the locks; it is not declared, because its name needs the time.
-- Cost
--   For each lock O(log n) for each record, in the number of records of all locks of its sorted set; for a record with `?`
--   in each week of ARGV 2. One record in ten, by the last digit of its fencing token, also costs the removal of the
--   oldest records.

local now, kept = redis.call('TIME')[1], tonumber(ARGV[2])
local week = math.floor(now / 604800)
local from = ARGV[4] == 'PEXPIREAT' and now * 1000 or 0
local expiry = string.format('%.0f', from + kept + 604800000)
for lock in string.gmatch(ARGV[5], '[^\30]+') do
  local name, prefix, counts, records = string.match(lock, '^(.-)\31(.-)\31(.-)\31(.*)$')
  local added, unproven, trims = {}, {}, false
  prefix = prefix == '' and string.sub(KEYS[1], 1, -6) .. 'history:' or prefix
  local key = prefix .. string.format('%.0f', week)
  local first, after = '[' .. name .. '\0', '(' .. name .. '\1'
  for text in string.gmatch(records, '[^\n]+') do
    local without_mark = string.match(text, '^%?(.*)$')
    if without_mark then
      unproven[#unproven + 1] = without_mark
    else
      added[#added + 1] = '0'
      added[#added + 1] = name .. '\0' .. text
      trims = trims or string.find(text, '^%d+0 ')
    end
  end
  if counts ~= '' then
    local count, since, dropped = string.match(counts, '(%d+) (%d+) (%d+)$')
    local old = redis.call('ZRANGE', key, first .. '~', after, 'BYLEX')[1]
    if old then
      local had, began, lost = string.match(old, '~(%d+) (%d+) (%d+)$')
      since = tonumber(had) == 0 and since or began
      count, dropped = count + had, dropped + lost
      redis.call('ZREM', key, old)
    end
    added[#added + 1] = '0'
    added[#added + 1] = name .. '\0~' .. string.format('%.0f %.0f %.0f', count, since, dropped)
  end
  -- Lua unpacks only some thousand values.
  for i = 1, #added, 2000 do
    redis.call('ZADD', key, unpack(added, i, math.min(#added, i + 1999)))
  end
  for _, text in ipairs(unproven) do
    local lease = name .. '\0' .. string.match(text, '^%d+')
    for back = 0, math.ceil(kept / 604800000) do
      local of_week = prefix .. string.format('%.0f', week - back)
      if redis.call('ZRANGE', of_week, '[' .. lease, '(' .. lease .. '!', 'BYLEX', 'LIMIT', '0', '1')[1] then
        redis.call('ZADD', key, '0', name .. '\0' .. text)
        break
      end
    end
  end
  local over = trims and redis.call('ZRANGE', key, after, first, 'BYLEX', 'REV', 'LIMIT', ARGV[3], '2000')
  if over and over[1] then
    redis.call('ZREM', key, unpack(over))
  end
  redis.call(ARGV[4], key, expiry)
end
return { 'recorded', ARGV[1] }
