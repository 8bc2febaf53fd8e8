-- Remembers what became of attempts. The script that imports it names `name`: what all keys of the lock
-- begin with.

-- Which letter replaces which: none is replaced by an earlier one.
local LETTERS = 'qgasrb'

-- TOMBSTONE is replaced by how long an end is remembered, in ms.
local function remember_end(id, letter, ms)
  local of = name .. 'of:' .. id
  local before = redis.call('GET', of)
  local rank = before and string.find(LETTERS, string.sub(before, 1, 1), 1, true) or 0
  if rank <= string.find(LETTERS, letter, 1, true) then
    redis.call('SET', of, letter, 'PX', ms)
  end
end
