-- Records how attempts ended, as one letter in `:of:ID`. The script that imports this part names `name`: the text with
-- which all keys of the lock begin.

-- The letters that record ends, in their order, after `q` of a queued ticket. A letter is never replaced by an earlier
-- letter.
local LETTERS = 'qgnasrb'

-- Whether a letter (the record of an outcome) may be written for an attempt, and the current value of its `:of:ID`. A
-- key of another type ends the script, so call this function before the first write.
local function may_replace(id, letter)
  local before = redis.call('GET', name .. 'of:' .. id)
  local rank = before and string.find(LETTERS, string.sub(before, 1, 1), 1, true) or 0
  return rank <= string.find(LETTERS, letter, 1, true), before
end

-- Writes the letter of an attempt for `ms` milliseconds, unless a later letter is there. (Composing replaces the word
-- TOMBSTONE by how long an end is remembered, in ms.)
local function remember_end(id, letter, ms)
  if may_replace(id, letter) then
    redis.call('SET', name .. 'of:' .. id, letter, 'PX', ms)
  end
end
