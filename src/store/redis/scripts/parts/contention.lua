-- Describes for a reply who holds the lock and how many waiters are queued. The script that imports this part names
-- `name` and the key `lock`.

-- How many leases of a shared lock a reply shows, at most.
local SHOWN_HOLDERS = '100'

-- The number of waiters and the holder of a lock, as fields of a reply: at most `most` leases of a shared lock, and,
-- if leases are shown, the first line of the first ticket (empty without one).
local function contention(count, held, us, most)
  if not held then
    return field(count) .. '7:passing'
  elseif is_lease(held) then
    return field(count) .. '4:held' .. field(held) .. field(us)
  elseif is_shared(held) then
    local shown = sharing().show(us, most)
    if not shown then
      return field(count) .. '7:passing'
    end
    local first = most ~= '0' and tonumber(count) > 0 and redis.call('LINDEX', name .. 'wait', '0')
    local ticket = first and redis.pcall('GET', name .. 'of:' .. first)
    ticket = is_queued(ticket) and ticket_ends(ticket) > us and string.match(ticket, '^[^\n]*')
    return field(count) .. '6:shared' .. shown .. field(ticket or '')
  end
  -- A foreign value may be long or a secret, so the reply has only its hash, by which a caller can recognise it.
  return field(count) .. '7:foreign' .. field(redis.call('PTTL', lock)) .. '40:' .. redis.sha1hex(held)
end
