-- Tells what stands between an attempt and the lock. The script that imports it names the key `lock`.

-- How many of those who share a lock are shown.
local SHOWN_HOLDERS = '100'

-- How many wait, and who holds the lock: of those who share it at most so many.
local function contention(count, held, us, most)
  if not held then
    return field(count) .. '7:passing'
  elseif is_lease(held) then
    return field(count) .. '4:held' .. field(held) .. field(us)
  elseif is_shared(held) then
    local shown = sharing().show(us, most)
    return field(count) .. (shown and '6:shared' .. shown or '7:passing')
  end
  -- What a foreign client has written is recognised without being repeated: it may be a secret, and long.
  return field(count) .. '7:foreign' .. field(redis.call('PTTL', lock)) .. '40:' .. redis.sha1hex(held)
end
