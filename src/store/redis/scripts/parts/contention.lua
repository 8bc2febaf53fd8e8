-- Describes for a reply who holds the lock and how many waiters are queued. The script that imports this part names the
-- key `lock`.

-- How many leases of a shared lock a reply shows, at most.
local SHOWN_HOLDERS = '100'

-- The number of waiters and the holder of a lock, as fields of a reply: at most `most` leases of a shared lock.
local function contention(count, held, us, most)
  if not held then
    return field(count) .. '7:passing'
  elseif is_lease(held) then
    return field(count) .. '4:held' .. field(held) .. field(us)
  elseif is_shared(held) then
    local shown = sharing().show(us, most)
    return field(count) .. (shown and '6:shared' .. shown or '7:passing')
  end
  -- A foreign value may be long or a secret, so the reply has only its hash, by which a caller can recognise it.
  return field(count) .. '7:foreign' .. field(redis.call('PTTL', lock)) .. '40:' .. redis.sha1hex(held)
end
