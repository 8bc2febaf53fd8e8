-- Grants a lock. The script that imports it names the keys `lock`, `info`, `ended` and `counter`,
-- and `tombstone`: how long an end is remembered, in ms.

-- The fence of a new grant; nothing, and why, if there is none.
local function next_fence(last, us, floor)
  -- 2025-01-01 and 2200-01-01: outside, no fence may be made from the time.
  if us < 1735689600000000 or us >= 7258118400000000 then
    return nil, 'clock'
  end
  if last and not string.find(last, '^%d+$') then
    return nil, 'counter'
  end
  local fence = math.max((tonumber(last) or 0) + 1, us, floor + 1)
  if fence > 9007199254740991 then
    return nil, 'exhausted'
  end
  return fence
end

local function append(fields, name, value)
  local n = #fields
  fields[n + 1], fields[n + 2] = name, value
end

-- Grants the free lock to a ticket and answers what is left until its hold limit (-1: none). The
-- fence comes first and the lock last: if a command fails half-way, nobody holds it.
--
-- `unheard`: the one who is granted it has not asked just now, and may never hear of it.
-- `provisional`: for this many ms, until it is heard of. Until then the hold limit does not count,
-- the idempotency key is not used, and the attempt may ask again.
local function grant(token, waiter, fence, now, unheard, provisional)
  -- What is written twice is made a text once; Lua must be told to write all digits.
  local fence_text = string.format('%.0f', fence)
  redis.call('SET', counter, fence_text)
  local expiry, left_until_limit = now + (provisional or waiter.ttl), -1
  local fields = {
    'v', LAYOUT, 'lock', token, 'fence', fence_text, 'ttl', waiter.ttl, 'acquired', now,
  }
  if waiter.hold ~= '' and provisional then
    append(fields, 'limit', waiter.hold)
  elseif waiter.hold ~= '' then
    left_until_limit = tonumber(waiter.hold)
    expiry = math.min(expiry, now + left_until_limit)
    append(fields, 'hold', now + left_until_limit)
  end
  if waiter.owner ~= '' then
    append(fields, 'owner', waiter.owner)
  end
  if waiter.metadata ~= '' then
    append(fields, 'metadata', waiter.metadata)
  end
  if waiter.key ~= '' then
    append(fields, 'idem', waiter.key)
    append(fields, 'finger', waiter.finger)
    append(fields, 'salt', waiter.salt)
    append(fields, 'returnable', '1')
  end
  if unheard then
    append(fields, 'unheard', '1')
  end
  if provisional then
    append(fields, 'provisional', '1')
    if waiter.late == '1' then
      append(fields, 'late', '1')
    end
  end
  redis.call('HSET', info, unpack(fields))
  local expiry_text = string.format('%.0f', expiry)
  redis.call('PEXPIREAT', info, expiry_text)
  if not provisional then
    local forget = expiry + tombstone
    if waiter.key ~= '' then
      remember(ended, now, forget, 'k:' .. waiter.key)
    end
    if waiter.late == '1' then
      remember(ended, now, forget, 'g:' .. token)
    end
  end
  redis.call('SET', lock, token, 'PXAT', expiry_text)
  return left_until_limit
end
