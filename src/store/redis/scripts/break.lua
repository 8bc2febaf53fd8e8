#!lua flags=allow-oom
-- Break: ends the lease or foreign value that holds the lock, if it is the expected one, and passes the lock on.
--
-- KEYS
--   1  lock   string: the lease, or a foreign value
--   2  fence  string: the fence counter of the slot
-- ARGV
--   1  a nonce, which is the identity of this break
--   2  the highest fence that the gateway has seen in this slot, in 16 digits, and the id of the gateway
--   3  the fence of the lease to break, in 16 digits, or empty; for all leases that share the lock, the highest fence
--   4  the mark of the foreign value to break, or empty
--   5  1 if an earlier copy of this command may still arrive, else 0
--   6  1 for all leases that share the lock, with fences up to that one; else nothing
-- Reply
--   broken ARGV 1: news
--   changed ARGV 1: news  another lease or value holds the lock, or nothing does
-- Replay
--   A break that was carried out is answered `broken` again, and the next holder is left alone. No two leases have the
--   same fence, but a foreign value may come back. So a copy that found another holder writes a letter, which keeps
--   earlier copies from breaking anything.
-- Clock
--   TIME of this Redis, only if there is a waiter.
-- Cluster
--   As for acquire.
-- Cost
--   As for acquire.

local lock, nonce, counter, floor = KEYS[1], ARGV[1], KEYS[2], ARGV[2]
local name, me, news = string.sub(lock, 1, -5), floor_gateway(ARGV[2]), ''
local wait, of = name .. 'wait', name .. 'of:' .. ARGV[1]

-- import clock
-- import fence
-- import field
-- import lease
-- import shared
-- import attempt_marks
-- import send
-- import gateways
-- import order
-- import hand_over

local held = redis.call('GET', lock)
local became = redis.call('GET', of)
if became then
  return (became == 'x' and 'broken ' or 'changed ') .. nonce .. ' 0:'
end
-- Records that a lease was broken, and tells the recipient of the lease.
local function remember_break(id, lease, delivered, replaces)
  if replaces then
    redis.call('SET', name .. 'of:' .. id, 'b', 'PX', TOMBSTONE)
  end
  if delivered and lease_keyed_is(lease, '1') then
    redis.call('SET', name .. 'key:' .. lease_key(lease), 'l' .. id, 'PX', TOMBSTONE)
  end
  -- The recipient of the lease, at any gateway, learns of the break now, and not with its next renewal.
  send('all', 'broken', id_token(id))
end

if is_shared(held) then
  local us, share = clock(), sharing()
  local broken = {}
  for _, lease in ipairs(share.prune(us) > 0 and share.all() or {}) do
    local fence = lease_fence(lease)
    if fence == ARGV[3] or (ARGV[6] and fence < ARGV[3]) then
      local delivered = not is_untold(lease)
      local replaces = delivered and may_replace(lease_id(lease), 'b')
      broken[#broken + 1] = { lease = lease, delivered = delivered, replaces = replaces }
    end
  end
  if #broken > 0 then
    redis.call('SET', of, 'x', 'PX', TOMBSTONE)
    for _, it in ipairs(broken) do
      local lease = it.lease
      local id = lease_id(lease)
      remember_break(id, lease, it.delivered, it.replaces)
      share.drop(id, lease)
    end
    pass_freed(us, share, share.prune(us))
    return 'broken ' .. nonce .. ' ' .. field(news)
  end
  held = redis.call('GET', lock)
end
local ours, meant = is_lease(held), nil
if ours then
  meant = lease_fence(held) == ARGV[3]
else
  meant = held and not is_shared(held) and redis.sha1hex(held) == ARGV[4]
end
if not meant then
  if ARGV[5] == '1' then
    redis.call('SET', of, 'y', 'PX', TOMBSTONE)
  end
  return 'changed ' .. nonce .. ' 0:'
end
-- If the lease was delivered, the letter `b` keeps a late copy of its acquire from taking the lock again, and the
-- idempotency key stays used. A provisional grant was not delivered, so its attempt may ask again.
local id = lease_id(held)
local delivered = ours and not is_untold(held)
local replaces = delivered and may_replace(id, 'b')
local head = redis.call('LINDEX', wait, '0')
local passed = head and hand_over(clock(), nil, 0, head)
redis.call('SET', of, 'x', 'PX', TOMBSTONE)
if ours then
  remember_break(id, held, delivered, replaces)
end
if passed ~= 'passed' then
  redis.call('DEL', lock)
end
return 'broken ' .. nonce .. ' ' .. field(news)
