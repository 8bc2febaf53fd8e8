-- What the scripts below it share that grant a lock or touch its queue. Like `lease.lua` it is
-- prepended, touches only keys of the lock and of its slot, and runs nothing by itself.
--
-- The queue is a sorted set of tickets by their order, and a hash with a record for each. The ticket
-- is the hash of the attempt's token. The hash also leads from an idempotency key (`k:..`) to the
-- ticket that was queued with it.
--
-- The functions take a table `at`: the keys of the lock by name, `me` (the id of the gateway that
-- runs the script), `floor` (the highest fence it has seen in the slot), `tombstone` (how long an
-- end is remembered, in ms), `news` (what the gateway has to hear, a part of the reply).

-- How long a grant lasts that another gateway is told of by a message, until it confirms it: a
-- message and a confirmation take milliseconds, and a lost message is found after two seconds. Not
-- less for a short TTL, which begins with the confirmation.
local PROVISIONAL = 3000
-- How long a gateway counts as alive without a word of it: three of its periods. While it has a
-- grant to confirm, no longer than that grant lasts.
local ALIVE = 6000
-- How much longer than its wait a ticket counts: it leaves by itself, and that may take a resend.
local SLACK = 5000
-- How many tickets are looked at together once the head was found dead, and how many dead ones one
-- script clears away: a few milliseconds. The gateway asks again for the rest.
local CHUNK, MOST_DEAD = 64, 512

local WAITER = '^1\n(%x*)\n(%d+)\n(%d+)\n([01])\n(%d+)\n(%d*)\n(%x*)\n(%x*)\n(%x*)\n([^\n]*)\n(.*)$'

-- Reads the record of a ticket. Second result: it is of a later layout, to be left alone. What is
-- no record at all counts as none.
local function read_waiter(text)
  if not text then
    return nil, false
  end
  local gateway, ends, queued, late, ttl, hold, key, finger, salt, owner, metadata =
    string.match(text, WAITER)
  if not gateway then
    return nil, string.match(text, '^%d+\n') ~= nil
  end
  return {
    gateway = gateway, ends = tonumber(ends), queued = tonumber(queued), late = late, ttl = ttl,
    hold = hold, key = key, finger = finger, salt = salt, owner = owner, metadata = metadata,
  }, false
end

local function write_waiter(waiter)
  return table.concat({
    '1', waiter.gateway, digits(waiter.ends), digits(waiter.queued), waiter.late, waiter.ttl,
    waiter.hold, waiter.key, waiter.finger, waiter.salt, waiter.owner, waiter.metadata,
  }, '\n')
end

-- Looks at the head of the queue before anything is written: a key of another type ends the script
-- here.
local function look(at)
  at.head = redis.call('ZRANGE', at.queue, 0, 0)[1]
  if at.head then
    redis.call('HLEN', at.waiters)
    redis.call('ZSCORE', at.ended, '')
    at.last = redis.call('GET', at.counter)
  end
end

-- The fence of a new grant; nothing, and why, if there is none.
local function next_fence(last, us, floor)
  -- 2025-01-01 and 2200-01-01: outside, no fence may be made from the time.
  if us < 1735689600000000 or us >= 7258118400000000 then
    return nil, 'clock'
  end
  if last and not string.match(last, '^%d+$') then
    return nil, 'counter'
  end
  local fence = math.max((tonumber(last) or 0) + 1, us, floor + 1)
  if fence > 9007199254740991 then
    return nil, 'exhausted'
  end
  return fence
end

-- Grants the free lock to a ticket and answers what is left until its hold limit (-1: none). The
-- fence comes first and the lock last: if a command fails half-way, nobody holds it.
--
-- `provisional`: for this many ms, until it is heard of. Until then the hold limit does not count,
-- the idempotency key is not used, and the attempt may ask again.
local function grant(at, token, waiter, fence, now, provisional)
  local fence_text = digits(fence)
  redis.call('SET', at.counter, fence_text)
  local expiry, left_until_limit = now + (provisional or waiter.ttl), -1
  local fields = {
    'v', LAYOUT, 'lock', token, 'fence', fence_text, 'ttl', waiter.ttl, 'acquired', digits(now),
  }
  local function field(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if waiter.hold ~= '' and provisional then
    field('limit', waiter.hold)
  elseif waiter.hold ~= '' then
    left_until_limit = tonumber(waiter.hold)
    expiry = math.min(expiry, now + left_until_limit)
    field('hold', digits(now + left_until_limit))
  end
  if waiter.owner ~= '' then
    field('owner', waiter.owner)
  end
  if waiter.metadata ~= '' then
    field('metadata', waiter.metadata)
  end
  if waiter.key ~= '' then
    field('idem', waiter.key)
    field('finger', waiter.finger)
    field('salt', waiter.salt)
    field('returnable', '1')
  end
  if provisional then
    field('provisional', '1')
    if waiter.late == '1' then
      field('late', '1')
    end
  end
  local expiry_text = digits(expiry)
  redis.call('HSET', at.info, unpack(fields))
  redis.call('PEXPIREAT', at.info, expiry_text)
  if not provisional then
    local forget = digits(expiry + at.tombstone)
    if waiter.key ~= '' then
      remember(at.ended, now, forget, 'k:' .. waiter.key)
    end
    if waiter.late == '1' then
      remember(at.ended, now, forget, 'g:' .. token)
    end
  end
  redis.call('SET', at.lock, token, 'PXAT', expiry_text)
  return left_until_limit
end

-- The key that is there as long as a gateway is alive: `lg:{TAG}:gw:ID`, next to the counter.
local function alive_key(at, gateway)
  return string.sub(at.counter, 1, -1 - #'fence') .. 'gw:' .. gateway
end

-- For how long a gateway still counts as alive; not at all: -2.
local function alive_for(at, known, gateway)
  known[gateway] = known[gateway] or redis.call('PTTL', alive_key(at, gateway))
  return known[gateway]
end

-- Sends a gateway a message. That it cannot be sent is no reason to fail: it is found out within a
-- period.
local function send(at, gateway, what, token)
  local name = string.sub(at.lock, 5, -7)
  local sent = redis.pcall('PUBLISH', 'lg:gw:' .. gateway, what .. ' ' .. token .. ' ' .. name)
  if type(sent) == 'table' and sent.err then
    at.news[#at.news + 1] = { 'unsent' }
  end
end

-- Takes tickets out of the queue. Redis does not refuse this when it is out of memory.
local function take_out(at, tokens, keys)
  for i = #tokens, 1, -1 do
    keys[#keys + 1] = tokens[i]
  end
  redis.call('ZREM', at.queue, unpack(tokens))
  redis.call('HDEL', at.waiters, unpack(keys))
end

-- Passes the free lock to the first in the queue who is alive, and clears away the dead before it.
-- Without a fence nobody is granted and the queue stays as it is. `look` comes before it. `stale`:
-- the record of an earlier lease may be in the way.
local function hand_over(at, now, us, stale)
  local fence = next_fence(at.last, us, at.floor)
  if not at.head or not fence then
    return
  end
  local known, tokens, cleared = { [''] = -1, [at.me] = -1 }, { at.head }, 0
  while #tokens > 0 do
    if cleared >= MOST_DEAD then
      at.news[#at.news + 1] = { 'more' }
      return
    end
    local records = redis.call('HMGET', at.waiters, unpack(tokens))
    local out, keys, chosen = {}, {}, nil
    for i, token in ipairs(tokens) do
      local waiter, later = read_waiter(records[i])
      if later then
        chosen = false
        break
      end
      out[#out + 1] = token
      if waiter and waiter.key ~= '' then
        keys[#keys + 1] = 'k:' .. waiter.key
      end
      if waiter and waiter.ends > now and alive_for(at, known, waiter.gateway) ~= -2 then
        chosen = waiter
        break
      end
    end
    if #out > 0 then
      take_out(at, out, keys)
    end
    if chosen == false then
      return
    end
    if chosen then
      if stale then
        redis.call('DEL', at.info)
      end
      local token, gateway, ttl = out[#out], chosen.gateway, tonumber(chosen.ttl)
      if gateway == at.me then
        local until_limit = grant(at, token, chosen, fence, now)
        at.news[#at.news + 1] = {
          'granted', token, fence, ttl, ttl, 0, until_limit, chosen.owner, chosen.metadata,
        }
        return
      end
      local lasts = gateway == '' and chosen.ends - now or PROVISIONAL
      grant(at, token, chosen, fence, now, lasts)
      at.news[#at.news + 1] = { 'passed', lasts }
      if gateway ~= '' then
        -- If it does not confirm, all who wait through it count as dead when this grant ends.
        if known[gateway] > PROVISIONAL then
          redis.call('PEXPIRE', alive_key(at, gateway), PROVISIONAL)
        end
        send(at, gateway, 'granted', token)
      end
      return
    end
    cleared = cleared + #out
    tokens = redis.call('ZRANGE', at.queue, 0, CHUNK - 1)
  end
end

-- Appends what stands between an attempt and the lock: how many wait, and who holds it.
local function contend(reply, at, now)
  reply[#reply + 1] = redis.call('ZCARD', at.queue)
  local held = redis.call('GET', at.lock)
  if not held then
    reply[#reply + 1] = 'passing'
    return reply
  end
  local record = redis.call('HMGET', at.info, 'lock', unpack(TOLD))
  local left = redis.call('PTTL', at.lock)
  if record[1] ~= held or left < 0 then
    reply[#reply + 1] = 'foreign'
    reply[#reply + 1] = left
    return reply
  end
  reply[#reply + 1] = 'held'
  return tell(reply, record, 2, left, now)
end

-- Keeps the queue at least until an instant.
local function outlive(at, now, ends)
  local left = redis.call('PTTL', at.queue)
  if left < 0 or now + left < ends then
    redis.call('PEXPIREAT', at.queue, digits(ends))
    redis.call('PEXPIREAT', at.waiters, digits(ends))
  end
end
