-- Remembers what became of attempts. The script that imports it names `name`: what all keys of the lock
-- begin with.

-- Which letter replaces which: none is replaced by an earlier one.
local LETTERS = 'qgasrb'

-- Whether a letter may be written, and what stands in its place. A key of another type ends the script: ask before the
-- first write.
local function may_replace(id, letter)
  local before = redis.call('GET', name .. 'of:' .. id)
  local rank = before and string.find(LETTERS, string.sub(before, 1, 1), 1, true) or 0
  return rank <= string.find(LETTERS, letter, 1, true), before
end

-- TOMBSTONE is replaced by how long an end is remembered, in ms.
local function remember_end(id, letter, ms)
  if may_replace(id, letter) then
    redis.call('SET', name .. 'of:' .. id, letter, 'PX', ms)
  end
end
