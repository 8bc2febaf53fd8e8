-- Reads what `:lock` holds and what `:of:ID` holds of a ticket. `records/` says what stands where.

-- Of a lease that nobody has adopted.
local NO_KEEPER = '                                                                '
-- Of a ticket that is kept for a caller who is away.
local NO_GATEWAY = '                '
-- How long the queue lasts, in ms: longer than anybody waits without being asked after. Once an hour each
-- gateway at which somebody waits for the lock gives it this again.
local QUEUE_LASTS = '90000000'

-- What `:lock` holds while leases share the lock.
local SHARED = '2*'

local function is_shared(held)
  -- What begins so and goes on is of a foreign client.
  return held == SHARED
end

-- Whether a lock is held by a lease of this layout. Anything else is foreign.
local function is_lease(held)
  return held and lease_reaches(held, 'keeper') and id_version_is(held, '2') and not id_token_is(held, '*')
    and string.find(lease_span(held, 'fence', 'hold_limit'), '^%d+$') ~= nil
end

-- How much longer than its holder was told a lease lasts that is to be released, in us: the gateway that has asked
-- breaks it in time, unless it has died.
local BACKSTOP = 1000000

-- When a lease is to be released because its holder was asked to, in us. Its mode is in capital letters then, and the
-- request stands behind the metadata.
local function asked_for(held)
  return lease_mode_below(held, 'a') and tonumber(string.match(held, '\n!(%d+)')) or nil
end

-- Who keeps a lease: until it is adopted, the attempt that it was granted to.
local function kept_by(held)
  local keeper = lease_keeper(held)
  return keeper == NO_KEEPER and id_token(held) or keeper
end

-- Whether nobody was told of a lease: its grant is provisional, or that of a place which is kept.
local function is_untold(held)
  local state = lease_state(held)
  return state == 'p' or state == 'k'
end

-- Whether `:of:ID` is that of a ticket, and makes sense: `q` stands in the queue, `w` was granted the lock
-- and has not confirmed it.
local function is_ticket(body)
  local state = type(body) == 'string' and ticket_reaches(body, 'keeper') and ticket_state(body)
  return (state == 'q' or state == 'w') and string.find(ticket_span(body, 'limit', 'hold_limit'), '^%d+$') ~= nil
end

-- Whether it is that of a ticket which stands in the queue.
local function is_queued(body)
  return is_ticket(body) and ticket_state_is(body, 'q')
end
