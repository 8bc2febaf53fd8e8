#!lua
-- Record history: adds records to the history of a lock, and removes its oldest records.
--
-- KEYS
--   1  fence  string: the fence counter of the slot, which only names the slot
-- ARGV
--   1  the name of the lock
--   2  what the keys of the histories begin with; empty for keys in the slot of the lock
--   3  how long records are kept, in ms
--   4  how many records of the lock are kept
--   5  how many shorter leases to add to the count
--   6  when the first of them ended, in ms
--   7  how many dropped records to add to the count
--   8  the command that sets an expiry: PEXPIRE, or PEXPIREAT for a user that may not run PEXPIRE
--   9  the records, with line feeds between them; one that begins with `?` is kept only if there is another record of
--      its lease
-- Reply
--   {recorded, ARGV 1}
-- Replay
--   Adds no record again, but counts ARGV 5 and 7 again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   The sorted set is in the slot of the lock; it is not declared, because its name needs the time.
-- Cost
--   O(log n) for each record, in the number of records of all locks of this sorted set; for a record with `?` in each
--   week of ARGV 3.

local name, added, unproven = ARGV[1], {}, {}
local now = redis.call('TIME')[1]
local prefix = ARGV[2] == '' and string.sub(KEYS[1], 1, -6) .. 'history:' or ARGV[2]
local week = math.floor(now / 604800)
local key = prefix .. string.format('%.0f', week)
local first, after = '[' .. name .. '\0', '(' .. name .. '\1'
for text in string.gmatch(ARGV[9], '[^\n]+') do
  local without_mark = string.match(text, '^%?(.*)$')
  if without_mark then
    unproven[#unproven + 1] = without_mark
  else
    added[#added + 1] = '0'
    added[#added + 1] = name .. '\0' .. text
  end
end
if ARGV[5] ~= '0' or ARGV[7] ~= '0' then
  local count, since, dropped = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local old = redis.call('ZRANGE', key, first .. '~', after, 'BYLEX')[1]
  if old then
    local had, from, lost = string.match(old, '~(%d+) (%d+) (%d+)$')
    since = tonumber(had) == 0 and since or tonumber(from)
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
  for back = 0, math.ceil(ARGV[3] / 604800000) do
    local of_week = prefix .. string.format('%.0f', week - back)
    if redis.call('ZRANGE', of_week, '[' .. lease, '(' .. lease .. '!', 'BYLEX', 'LIMIT', '0', '1')[1] then
      redis.call('ZADD', key, '0', name .. '\0' .. text)
      break
    end
  end
end
local over = redis.call('ZRANGE', key, after, first, 'BYLEX', 'REV', 'LIMIT', ARGV[4], '2000')
if over[1] then
  redis.call('ZREM', key, unpack(over))
end
local from = ARGV[8] == 'PEXPIREAT' and now * 1000 or 0
redis.call(ARGV[8], key, string.format('%.0f', from + ARGV[3] + 604800000))
return { 'recorded', name }
