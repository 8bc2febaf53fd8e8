#!lua flags=allow-oom
-- History: shows the newest records of the history of a lock.
--
-- KEYS
--   1  fence  string: the fence counter of the slot, which only names the slot
-- ARGV
--   1  the name of the lock
--   2  what the keys of the histories begin with; empty for keys in the slot of the lock
--   3  how many weeks before this week are read as well
-- Reply
--   {history, ARGV 1, text, text ..}   records, and counts
-- Replay
--   Reads again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for record_history.
-- Cost
--   O(log n) in the number of records of all locks, and O(n) in the number of texts.

local name, reply = ARGV[1], { 'history', ARGV[1] }
local week = math.floor(redis.call('TIME')[1] / 604800)
local prefix = ARGV[2] == '' and string.sub(KEYS[1], 1, -6) .. 'history:' or ARGV[2]
for back = 0, tonumber(ARGV[3]) do
  local key = prefix .. string.format('%.0f', week - back)
  local found = redis.call('ZRANGE', key, '(' .. name .. '\1', '[' .. name .. '\0', 'BYLEX', 'REV')
  for _, member in ipairs(found) do
    reply[#reply + 1] = string.match(member, '%z(.*)$')
  end
end
return reply
