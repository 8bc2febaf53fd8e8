-- Tells what stands between an attempt and the lock. The script that imports it names the key `lock`.

-- How many wait, and who holds the lock.
local function contention(count, held, us)
  if not held then
    return field(count) .. '7:passing'
  elseif is_lease(held) then
    return field(count) .. '4:held' .. field(held) .. field(us)
  end
  -- What a foreign client has written is recognised without being repeated: it may be a secret, and long.
  return field(count) .. '7:foreign' .. field(redis.call('PTTL', lock)) .. '40:' .. redis.sha1hex(held)
end
