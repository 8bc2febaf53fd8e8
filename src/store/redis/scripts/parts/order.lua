-- Compares and remembers the order of a lease: the highest order of all grants is in `:order`. The script that imports
-- this part names `name`. (Composing replaces the word ORDER_KEEP by how long an order is
-- remembered after its last grant, in ms.)

-- In place of a number: there is none.
local NO_ORDER = string.rep(' ', 16)

-- The digits of the order of a ticket, a lease or the terms of an acquire; nothing if it has none, or is a rollback,
-- which is neither compared nor remembered. The owner has no line feed, so no caller can write such a text.
local function order_of(text)
  return string.find(text, '\n{"":"#', 1, true) and string.match(text, '\n{"":"#(%d+)') or nil
end

-- What the lock remembers, or nothing. A key of another type counts as nothing, because the script may have written.
local function highest()
  local record = redis.pcall('GET', name .. 'order')
  return type(record) == 'string' and highest_reaches(record, 'previous') and record or nil
end

-- What the lock remembers, if it was granted for a higher order than that of this ticket or lease.
local function newer_than(text)
  local order = order_of(text)
  local record = order and highest()
  return record and highest_number(record) > order and record or nil
end

-- Whether the lock remembers its order because of this lease.
local function is_by(record, lease)
  return record and highest_reaches(record, 'id') and highest_id(record) == lease_id(lease)
end

-- Remembers the order of a lease, of which a caller may be told from now on.
local function remember_order(lease)
  local order = order_of(lease)
  local record = order and highest()
  if order and not is_by(record, lease) then
    local previous = record and highest_number(record) or NO_ORDER
    -- Without the metadata of the caller, which may be long: quotes within its first entry, which has the order, are
    -- escaped.
    local _, start = string.find(lease, '\n{"":"#', 1, true)
    local past = string.find(lease, '","', start, true)
    lease = past and string.sub(lease, 1, past) .. '}' or lease
    redis.call('SET', name .. 'order', order .. previous .. lease, 'PX', 'ORDER_KEEP')
  end
end

-- Forgets the order of a lease of which no caller was told, or that was not used.
local function forget_order(lease)
  local record = order_of(lease) and highest()
  if is_by(record, lease) then
    local previous = highest_previous(record)
    if previous == NO_ORDER then
      redis.call('DEL', name .. 'order')
    else
      redis.call('SET', name .. 'order', previous .. NO_ORDER, 'KEEPTTL')
    end
  end
end
