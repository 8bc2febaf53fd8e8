-- Reads leases in `:lock` and tickets in `:of:ID`. The layouts are in `records/`.

-- The recipient field of a lease that no recipient has adopted.
local NO_RECIPIENT = '                                                                '
-- The gateway field of a ticket whose position is kept for a caller that is away.
local NO_GATEWAY = '                '
-- Expiry of the queue in ms, longer than any wait. Once an hour each gateway with a waiter for the lock sets this
-- expiry again.
local QUEUE_LASTS = '90000000'

-- The value of `:lock` while leases share the lock.
local SHARED = '2*'

-- Beginning of the id of a rest, which the fence follows. No token has such a hash, so nobody can renew or release a
-- rest, and the token of the lease no longer holds the lock.
local REST = '2' .. string.rep('0', 48)

local function is_shared(held)
  -- A longer value that begins with SHARED is foreign.
  return held == SHARED
end

-- Whether `:lock` holds an exclusive lease of this layout. Any other value, except SHARED, is foreign.
local function is_lease(held)
  return held and lease_reaches(held, 'recipient') and id_version_is(held, '2') and not id_token_is(held, '*')
    and string.find(lease_span(held, 'fence', 'min_hold'), '^%d+$') ~= nil
end

-- How much longer a lease lasts than the time given in its release request, in us. The requesting gateway breaks the
-- lease in time; this end is for a gateway that has died.
local BACKSTOP = 1000000

-- The time by which the holder was asked to release a lease, in us, or nothing. A release request turns the mode into a
-- capital letter and follows the metadata.
local function asked_for(held)
  return lease_mode_below(held, 'a') and tonumber(string.match(held, '\n!(%d+)')) or nil
end

-- The hold limit of a reservation, which has no other: it ends at a time that follows the owner, in its metadata.
local RESERVED = '999999999'

-- Until when the lock is reserved, in ms since 1970, by a lease or a ticket with this hold limit; nothing if it is no
-- reservation. The owner has no line feed, so no caller can write such a time.
local function reserved_until(hold_limit, text)
  return hold_limit == RESERVED and tonumber(string.match(text, '\n{"":"@(%d+)')) or nil
end

-- The recipient of a lease: until a recipient adopts the lease, the attempt that was granted it.
local function kept_by(held)
  local recipient = lease_recipient(held)
  return recipient == NO_RECIPIENT and id_token(held) or recipient
end

-- Whether no caller was told of a lease yet: the grant is provisional, or was made for a kept position.
local function is_untold(held)
  local state = lease_state(held)
  return state == 'p' or state == 'k'
end

-- Whether the value of `:of:ID` is a valid ticket: `q` is queued, `w` was granted the lock and has not confirmed the
-- grant.
local function is_ticket(body)
  local state = type(body) == 'string' and ticket_reaches(body, 'recipient') and ticket_state(body)
  return (state == 'q' or state == 'w') and string.find(ticket_span(body, 'limit', 'min_hold'), '^%d+$') ~= nil
end

-- Whether the value of `:of:ID` is a ticket that is queued.
local function is_queued(body)
  return is_ticket(body) and ticket_state_is(body, 'q')
end
