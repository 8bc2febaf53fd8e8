#!lua flags=allow-oom
-- Ask: asks the holder of a lease to release it in time, and makes the lease end soon after that time at the latest.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot, which says that the slot is not being moved
-- ARGV
--   1  the fence of the lease to be released, in 16 digits; for all leases that share the lock, the highest fence
--   2  the id of this gateway
--   3  how much time the holder has, in ms
--   4  owner and reason of the release request, which only gateways read
--   5  1 for all leases that share the lock, with fences up to that one; else nothing
-- Reply
--   asked KEYS 1: news
--   changed KEYS 1: news  another lease or value holds the lock, or nothing does
-- Replay
--   Asks again. A request that is due later than the stored one changes nothing, and no request makes a lease last
--   longer.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   As for acquire.
-- Cost
--   O(1), and O(m) for the m leases that share the lock.

local lock, me, news = KEYS[1], ARGV[2], ''
local name = string.sub(lock, 1, -5)
local wait, counter = name .. 'wait', KEYS[2]

-- import clock
-- import field
-- import lease
-- import shared
-- import send

local held, us = redis.call('GET', lock), clock()
local share = is_shared(held) and sharing()

-- The lease with a release request due at `ends`; nothing if a request is due at that time or earlier.
local function with_request(lease, ends)
  local before = asked_for(lease)
  if before and before <= ends then
    return nil
  end
  local slot = string.match(lease, '\n%d+$') or ''
  local mode, last = string.upper(lease_mode(lease)), math.min(ends + BACKSTOP, lease_ends(lease))
  last = string.format('%016.0f', last)
  -- The owner and the metadata are lines of the lease. An earlier request follows them, and is replaced.
  lease = string.match(lease, '^[^\n]*\n?[^\n]*')
  return lease_with(lease, { mode = mode, ends = last }) .. '\n!'
    .. string.format('%016.0f', ends) .. ARGV[4] .. slot
end

local meant = {}
if share then
  for _, lease in ipairs(share.prune(us) > 0 and share.all() or {}) do
    local fence = lease_fence(lease)
    if fence == ARGV[1] or (ARGV[5] and fence < ARGV[1]) then
      meant[#meant + 1] = lease
    end
  end
elseif is_lease(held) and lease_fence(held) == ARGV[1] then
  meant[1] = held
end
if #meant == 0 then
  return 'changed ' .. lock .. ' 0:'
end

local ends, sooner = us + ARGV[3] * 1000, nil
for _, lease in ipairs(meant) do
  local id, asked = lease_id(lease), with_request(lease, ends)
  if asked then
    local left = math.max(1, math.floor((lease_ends(asked) - us) / 1000))
    if share then
      share.keep(asked, us)
    else
      redis.call('SET', lock, asked, 'PX', left)
    end
    sooner = math.min(sooner or left, left)
    -- A rest ends sooner, too, but has neither token nor recipient.
    if not lease_state_is(lease, 'r') then
      -- After this time, the token of a lease that has ended is told that the lease was broken.
      redis.call('SET', name .. 'asked:' .. id, string.format('%016.0f', ends), 'PX', ARGV[3] + BACKSTOP / 1000 + TOMBSTONE)
      -- The recipient of the lease, at any gateway, learns of the request now, and not with its next renewal.
      send('all', 'broken', id_token(id))
    end
  end
end
if sooner then
  local look = share and share.next_look(us) or sooner
  news = news .. field('6:passed' .. field(string.format('%.0f', look)))
  foretell(look)
end
return 'asked ' .. lock .. ' ' .. field(news)
