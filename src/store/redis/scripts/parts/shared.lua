-- Manages the leases that share a lock. The script that imports this part names the key `lock`, and `name`, and
-- imports `lease`, and `field` if the script shows the leases.
--
-- `:lock` is SHARED until the last lease ends. `:shared` (sorted set) has the ids of the leases by their ends, in us;
-- `:leases` (hash) has the leases by their ids, as `records/lease.rs` says; `:slots` (bitmap) has the slots in use.
-- Scripts use these three keys only while `:lock` is SHARED, and delete them before they write SHARED, because a
-- foreign client may have deleted `:lock` alone. The three keys last longer than `:lock`. So a missing key was lost
-- (evicted, or deleted by hand): `:shared` and `:slots` are rebuilt from `:leases`, and without `:leases` nobody holds
-- the lock.

-- How many arguments a command has at most, because Lua unpacks only some thousand values.
local MOST_UNPACKED = 1000

-- Makes the functions on a shared lock. They are made only when a lock is shared, so that an exclusive lock does not
-- pay for them.
local function sharing()
  local ids, leases, slots = name .. 'shared', name .. 'leases', name .. 'slots'
  local share = {}

  -- Makes a free lock shared, with a first lease, and answers this lease as `grant` does.
  function share.open(lease, us)
    local id, ends = lease_id(lease), lease_ends(lease)
    local left, has_slot = math.max(1, math.ceil((ends - us) / 1000)), lease_mode_is(lease, 'n')
    redis.call('DEL', ids, leases, slots)
    redis.call('SETBIT', slots, '0', has_slot and '1' or '0')
    redis.call('ZADD', ids, ends, id)
    lease = has_slot and lease .. '\n0' or lease
    share.rewrite(lease)
    share.outlast(left)
    redis.call('SET', lock, SHARED, 'PX', left)
    return lease
  end

  function share.close()
    redis.call('DEL', lock, ids, leases, slots)
  end

  -- Ends a shared lease and frees its slot.
  function share.drop(id, lease)
    redis.call('ZREM', ids, id)
    local slot = string.match(lease, '\n(%d+)$')
    if slot then
      redis.call('SETBIT', slots, slot, '0')
    end
    redis.call('HDEL', leases, id)
  end

  -- How many leases share the lock, including expired leases that are not removed yet.
  function share.count()
    return redis.call('ZCARD', ids)
  end

  -- Rebuilds `:shared` and `:slots` from the living leases, and answers how many leases there are.
  function share.restore(us)
    redis.call('DEL', ids, slots)
    redis.call('SETBIT', slots, '0', '0')
    for _, lease in ipairs(share.all()) do
      local id, ends, slot = lease_id(lease), lease_ends(lease), string.match(lease, '\n(%d+)$')
      if ends <= us then
        redis.call('HDEL', leases, id)
      else
        redis.call('ZADD', ids, ends, id)
        if slot then
          redis.call('SETBIT', slots, slot, '1')
        end
      end
    end
    local last = redis.call('ZRANGE', ids, '-1', '-1')[1]
    if last then
      share.end_with_last(us, last)
    end
    return share.count()
  end

  -- Removes expired leases, and answers how many are left. If none is left, the lock becomes free. A key of another
  -- type ends the script here, before the first write.
  function share.prune(us)
    local over = redis.call('ZRANGE', ids, '-inf', us, 'BYSCORE')
    local living, taken = redis.call('HLEN', leases), redis.call('GETRANGE', slots, '0', '0')
    for _, id in ipairs(over) do
      share.drop(id, redis.call('HGET', leases, id) or '')
    end
    local count = share.count()
    if living - #over ~= count or taken == '' then
      count = share.restore(us)
    end
    if count == 0 then
      share.close()
    end
    return count
  end

  -- Ends a living lease, removes expired leases, and answers how many are left. While a slot is moved a key
  -- that was deleted may no longer be read, so the last lease is deleted together with the keys.
  function share.remove(id, lease, us)
    local others = share.prune(us) - 1
    if others > 0 then
      share.drop(id, lease)
    else
      share.close()
    end
    return math.max(0, others)
  end

  -- Replaces a living lease by its rest, which keeps the slot, and answers how many leases share the lock. The rest is
  -- written before the lease is deleted, so that neither a change that was cut short frees the slot, nor a key is
  -- empty for a moment: while a slot is moved a key that was deleted may no longer be written.
  function share.rest(id, rest, us)
    local count = share.prune(us)
    share.rewrite(rest)
    redis.call('ZADD', ids, lease_ends(rest), lease_id(rest))
    redis.call('ZREM', ids, id)
    share.end_with_last(us, lease_id(rest))
    redis.call('HDEL', leases, id)
    return count
  end

  -- The shared lease with this id, if it has not expired.
  function share.find(id, us)
    local lease = redis.call('HGET', leases, id)
    return lease and lease_ends(lease) > us and lease or nil
  end

  -- Writes a shared lease whose end is unchanged.
  function share.rewrite(lease)
    redis.call('HSET', leases, lease_id(lease), lease)
  end

  -- Sets the expiry of the lock's other three keys to a tombstone time after `:lock`, which ends in `left` ms.
  function share.outlast(left)
    for _, key in ipairs({ ids, leases, slots }) do
      redis.call('PEXPIRE', key, left + TOMBSTONE)
    end
  end

  -- Sets the expiry of the lock to the end of the last lease. `id`: the lease whose end has just been set.
  function share.end_with_last(us, id)
    local last = redis.call('ZRANGE', ids, '-1', '-1', 'WITHSCORES')
    local left = math.max(1, math.ceil((last[2] - us) / 1000))
    redis.call('PEXPIRE', lock, left)
    if id == last[1] then
      share.outlast(left)
    end
  end

  -- Writes a shared lease and its end; `slot`: a slot that the lease takes.
  function share.keep(lease, us, slot)
    local id = lease_id(lease)
    -- ZADD comes first because no command has read this key yet: a key of another type ends the script here. And by
    -- an id without a lease, `prune` notices a slot that was taken without a lease.
    redis.call('ZADD', ids, lease_ends(lease), id)
    if slot then
      redis.call('SETBIT', slots, slot, '1')
    end
    share.end_with_last(us, id)
    share.rewrite(lease)
  end

  -- Grants a lease beside the leases that share the lock, and answers it: with a slot, if the mode of the lease has
  -- slots.
  function share.grant(lease, us)
    local slot = lease_mode_is(lease, 'n') and redis.call('BITPOS', slots, '0')
    if slot then
      lease = lease .. '\n' .. string.format('%.0f', slot)
    end
    share.keep(lease, us, slot)
    return lease
  end

  -- The shared leases with these ids.
  local function read_all(found)
    local read = {}
    for i = 1, #found, MOST_UNPACKED do
      for _, lease in ipairs(redis.call('HMGET', leases, unpack(found, i, math.min(#found, i + MOST_UNPACKED - 1)))) do
        read[#read + 1] = lease or ''
      end
    end
    return read
  end

  -- The shared leases that end after `us` and until `before`, soonest first, at most `most` of them.
  function share.ending(us, before, most)
    return read_all(redis.call('ZRANGE', ids, '(' .. us, before, 'BYSCORE', 'LIMIT', '0', most))
  end

  function share.all()
    return redis.call('HVALS', leases)
  end

  -- In how many ms the head of the queue may be granted the lock if no holder renews: for an exclusive waiter, when the
  -- last lease ends; for a waiter with a limit, when fewer leases than the limit are left.
  function share.next_look(us)
    local head = redis.pcall('LINDEX', name .. 'wait', '0')
    local body = type(head) == 'string' and
      redis.pcall('GETRANGE', name .. 'of:' .. head, ticket_range('state', 'recipient'))
    local limit = is_queued(body) and not ticket_mode_is(body, 'x') and tonumber(ticket_limit(body)) or 1
    local after = '(' .. us
    local rank = math.max(0, redis.call('ZCOUNT', ids, after, '+inf') - limit)
    local at = redis.call('ZRANGE', ids, after, '+inf', 'BYSCORE', 'LIMIT', rank, '1', 'WITHSCORES')[2]
    return at and math.ceil((at - us) / 1000) or 0
  end

  -- At most `most` of the living leases, soonest first, and how many leases rest. If not all are shown, the holders are
  -- first.
  local function some_of(us, most)
    local living = redis.call('ZRANGE', ids, '(' .. us, '+inf', 'BYSCORE')
    local holders, rests = {}, {}
    for _, id in ipairs(living) do
      local kind = string.sub(id, 1, #REST) == REST and rests or holders
      kind[#kind + 1] = id
    end
    if #living <= most then
      return read_all(living), #rests
    end
    local shown = {}
    for i = 1, most do
      shown[i] = holders[i] or rests[i - #holders]
    end
    return read_all(shown), #rests
  end

  -- The state of a shared lock for a reply: how many leases share it, how many of them rest if leases are shown, when
  -- to look again, at most `most` leases (or only the lease with this fence, if it exists), and the time; nothing if no
  -- lease is left.
  function share.show(us, most, fence)
    local count = redis.call('ZCOUNT', ids, '(' .. us, '+inf')
    if count == 0 then
      return nil
    end
    local shown, rests
    for _, lease in ipairs(fence and share.all() or {}) do
      if lease_fence(lease) == fence and lease_ends(lease) > us then
        shown = { lease }
      end
    end
    if not shown and most ~= '0' then
      shown, rests = some_of(us, tonumber(most))
    end
    shown = shown or {}
    for i, lease in ipairs(shown) do
      shown[i] = field(lease)
    end
    return field(count) .. field(rests or 0) .. field(share.next_look(us)) .. field(table.concat(shown)) .. field(us)
  end

  return share
end
