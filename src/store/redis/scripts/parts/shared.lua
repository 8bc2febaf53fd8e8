-- Knows the leases that share a lock. The script that imports it names the key `lock`, and `name`, and
-- imports `lease`, and `field` if it shows them.
--
-- `:lock` is SHARED then, until the last of them ends. `:shared` (sorted set) has their ids by their ends, in us;
-- `:leases` (hash) has the leases by their ids, as `records/lease.rs` says; `:slots` (bitmap) has the slots that are taken.
-- These three are believed only beside SHARED: whoever writes it deletes them first, since a foreign client may
-- have deleted `:lock` alone. They last longer than `:lock`, so that one that is missing was lost (evicted, or deleted
-- by hand): what is not in `:leases` is made again from it, and without `:leases` nobody holds the lock.
--
-- A command that the user may not run any more ends a script half-way. So SHARED is written last where a lock begins to
-- be shared, and `:leases` where a lease begins or ends: what came before counts for nothing, or `prune` undoes it.

-- How many arguments a command has at most: Lua takes some thousand.
local MOST_UNPACKED = 1000

-- What is done with them. It is made where a lock is shared: a lock that is held alone does not pay for the functions.
local function sharing()
  local ids, leases, slots = name .. 'shared', name .. 'leases', name .. 'slots'
  local share = {}

  -- Shares a lock that is free, or becomes so, with a first lease, and answers it as `grant` does.
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

  -- Removes what `open` has written before it was refused something.
  function share.forget()
    redis.pcall('DEL', ids, leases, slots)
  end

  function share.close()
    redis.call('DEL', lock, ids, leases, slots)
  end

  -- Ends a lease, and frees its slot.
  function share.drop(id, lease)
    redis.call('ZREM', ids, id)
    local slot = string.match(lease, '\n(%d+)$')
    if slot then
      redis.call('SETBIT', slots, slot, '0')
    end
    redis.call('HDEL', leases, id)
  end

  -- How many share the lock, those included whose time is over and who are there yet.
  function share.count()
    return redis.call('ZCARD', ids)
  end

  -- Makes what was lost of the other two keys from the leases that live, and answers how many there are.
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

  -- Ends those whose time is over, and answers how many are left. If there are none, the lock is free. Keys of another
  -- type end the script here, before it writes.
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

  -- Ends a lease that lives, with those whose time is over, and answers how many are left. While a slot is moved a key
  -- that is gone may not be asked for any more, so the last lease goes with the keys.
  function share.remove(id, lease, us)
    local others = share.prune(us) - 1
    if others > 0 then
      share.drop(id, lease)
    else
      share.close()
    end
    return math.max(0, others)
  end

  -- The living lease with an id.
  function share.find(id, us)
    local lease = redis.call('HGET', leases, id)
    return lease and lease_ends(lease) > us and lease or nil
  end

  -- Writes a lease whose end stays as it is.
  function share.rewrite(lease)
    redis.call('HSET', leases, lease_id(lease), lease)
  end

  -- Lets the other three keys last longer than `:lock`, which ends in so many ms.
  function share.outlast(left)
    for _, key in ipairs({ ids, leases, slots }) do
      redis.call('PEXPIRE', key, left + TOMBSTONE)
    end
  end

  -- Lets the lock end with the last lease. `id`: one whose end has just been set.
  function share.end_with_last(us, id)
    local last = redis.call('ZRANGE', ids, '-1', '-1', 'WITHSCORES')
    local left = math.max(1, math.ceil((last[2] - us) / 1000))
    redis.call('PEXPIRE', lock, left)
    if id == last[1] then
      share.outlast(left)
    end
  end

  -- Writes a lease with its end; `slot`: one that it takes.
  function share.keep(lease, us, slot)
    local id = lease_id(lease)
    -- First, as whoever has found the lease has not looked at this key: of another type it ends the script here. And by
    -- an id without a lease `prune` finds that a slot was taken for none.
    redis.call('ZADD', ids, lease_ends(lease), id)
    if slot then
      redis.call('SETBIT', slots, slot, '1')
    end
    share.end_with_last(us, id)
    share.rewrite(lease)
  end

  -- Grants a lease beside others, and answers it: with a slot, if its mode has one.
  function share.grant(lease, us)
    local slot = lease_mode_is(lease, 'n') and redis.call('BITPOS', slots, '0')
    if slot then
      lease = lease .. '\n' .. string.format('%.0f', slot)
    end
    share.keep(lease, us, slot)
    return lease
  end

  -- The leases that end after a time, soonest first, at most so many.
  function share.ending(us, before, most)
    local found = redis.call('ZRANGE', ids, '(' .. us, before, 'BYSCORE', 'LIMIT', '0', most)
    local shown = {}
    for i = 1, #found, MOST_UNPACKED do
      for _, lease in ipairs(redis.call('HMGET', leases, unpack(found, i, math.min(#found, i + MOST_UNPACKED - 1)))) do
        shown[#shown + 1] = lease or ''
      end
    end
    return shown
  end

  function share.all()
    return redis.call('HVALS', leases)
  end

  -- After how many ms the head of the queue may be granted the lock if none of those who share it renews its lease:
  -- a head that wants it alone after the last of them, one with a limit when fewer than that hold it.
  function share.next_look(us)
    local head = redis.pcall('LINDEX', name .. 'wait', '0')
    local body = type(head) == 'string' and redis.pcall('GETRANGE', name .. 'of:' .. head, ticket_range('state', 'keeper'))
    local limit = is_queued(body) and not ticket_mode_is(body, 'x') and tonumber(ticket_limit(body)) or 1
    local after = '(' .. us
    local rank = math.max(0, redis.call('ZCOUNT', ids, after, '+inf') - limit)
    local at = redis.call('ZRANGE', ids, after, '+inf', 'BYSCORE', 'LIMIT', rank, '1', 'WITHSCORES')[2]
    return at and math.ceil((at - us) / 1000) or 0
  end

  -- How many hold the lock, when to look again, at most so many of the leases (or the one with a fence, if there is
  -- one), and the time; nothing if none is left.
  function share.show(us, most, fence)
    local count = redis.call('ZCOUNT', ids, '(' .. us, '+inf')
    if count == 0 then
      return nil
    end
    local shown
    for _, lease in ipairs(fence and share.all() or {}) do
      if lease_fence(lease) == fence and lease_ends(lease) > us then
        shown = { lease }
      end
    end
    shown = shown or most ~= '0' and share.ending(us, '+inf', most) or {}
    for i, lease in ipairs(shown) do
      shown[i] = field(lease)
    end
    return field(count) .. field(share.next_look(us)) .. field(table.concat(shown)) .. field(us)
  end

  return share
end
