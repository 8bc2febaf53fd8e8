-- Reads what `:lock` holds and what `:of:ID` holds of a ticket. `layout.rs` says what stands where.

-- Of a lease that nobody has adopted.
local NO_KEEPER = '                                                                '
-- Of a ticket that is kept for a caller who is away.
local NO_GATEWAY = '                '
-- How long the queue lasts, in ms: longer than anybody waits without being asked after. Once an hour each
-- gateway at which somebody waits for the lock gives it this again.
local QUEUE_LASTS = '90000000'

-- Whether a lock is held by a lease of this layout. Anything else is foreign.
local function is_lease(held)
  return held and #held >= 215 and string.byte(held) == 50 and string.byte(held, 2) ~= 42
    and string.find(string.sub(held, 71, 135), '^%d+$') ~= nil
end

-- How much longer than its holder was told a lease lasts that is to be released, in us: the gateway that has asked
-- breaks it in time, unless it has died.
local BACKSTOP = 1000000

-- When a lease is to be released because its holder was asked to, in us. Its mode is in capital letters then, and the
-- request stands behind the metadata.
local function asked_for(held)
  return string.byte(held, 67) < 97 and tonumber(string.match(held, '\n!(%d+)', 216)) or nil
end

-- Who keeps a lease: until it is adopted, the attempt that it was granted to.
local function kept_by(held)
  local keeper = string.sub(held, 152, 215)
  return keeper == NO_KEEPER and string.sub(held, 2, 65) or keeper
end

-- Whether nobody was told of a lease: its grant is provisional, or that of a place which is kept.
local function is_untold(held)
  local state = string.byte(held, 66)
  return state == 112 or state == 107
end

-- Whether `:of:ID` is that of a ticket, and makes sense: `q` stands in the queue, `w` was granted the lock
-- and has not confirmed it.
local function is_ticket(body)
  local state = type(body) == 'string' and #body >= 154 and string.byte(body)
  return (state == 113 or state == 119) and string.find(string.sub(body, 22, 74), '^%d+$') ~= nil
end

-- Whether it is that of a ticket which stands in the queue.
local function is_queued(body)
  return is_ticket(body) and string.byte(body) == 113
end
