-- Passes a free lock to the first in the queue who is alive. The script that imports it names all
-- keys of the lock, `floor` (the highest fence that its gateway has seen in the slot), `me` and
-- `news`.

-- How long a grant lasts that another gateway is told of by a message, until it confirms it: a
-- message and a confirmation take milliseconds, and a lost message is found after two seconds. Not
-- less for a short TTL, which begins with the confirmation.
local PROVISIONAL = 3000
-- How many tickets are looked at together once the head was found dead, and how many dead ones one
-- script clears away: a few milliseconds. The gateway asks again for the rest.
local CHUNK, MOST_DEAD = 64, 512

-- The first ticket, the records of the first two as they were found, that of the first as it was read,
-- and the last fence.
local head, first, front, last

-- Looks at the first two tickets of the queue before anything is written: a key of another type ends
-- the script here.
local function look(tickets, now)
  head = tickets[1]
  if head then
    first = redis.call('HMGET', waiters, unpack(tickets))
    front = read_waiter(first[1])
    -- Who is certain to be granted the lock may leave nothing to be remembered.
    local sure = front and front.gateway == me and front.ends > now
    if not (sure and front.key == '' and front.late == '0') then
      redis.call('ZSCORE', ended, '')
    end
    last = redis.call('GET', counter)
  end
end

-- Grants the lock to a ticket that was taken out of the queue. `behind`: the record of the one behind
-- it, as far as it is known.
local function pass(token, waiter, fence, now, stale, behind)
  if stale then
    redis.call('DEL', info)
  end
  local gateway = waiter.gateway
  if gateway == me then
    local until_limit, ttl = grant(token, waiter, fence, now, true), tonumber(waiter.ttl)
    news[#news + 1] = {
      'granted', token, fence, ttl, ttl, 0, until_limit, waiter.owner, waiter.metadata,
    }
    return foretell(behind, ttl)
  end
  local lasts = gateway == '' and waiter.ends - now or PROVISIONAL
  grant(token, waiter, fence, now, true, lasts)
  -- From its confirmation on it lasts its TTL, which may be over sooner.
  local soonest = math.min(lasts, tonumber(waiter.ttl))
  news[#news + 1] = { 'passed', soonest }
  if gateway ~= '' then
    -- If it does not confirm, all who wait through it count as dead when this grant ends.
    if alive_for(gateway) > PROVISIONAL then
      redis.call('PEXPIRE', alive_key(gateway), PROVISIONAL)
    end
    send(gateway, 'granted', token, string.format('%.0f', fence))
  end
  foretell(behind, soonest)
end

-- Passes the free lock to the first in the queue who is alive, and clears away the dead before it.
-- Without a fence nobody is granted and the queue stays as it is. `look` comes before it. `stale`:
-- the record of an earlier lease may be in the way.
local function hand_over(now, us, stale)
  local fence = head and next_fence(last, us, floor)
  if not fence then
    return
  end
  local tokens, records, cleared = { head }, first, 0
  while #tokens > 0 do
    if cleared >= MOST_DEAD then
      news[#news + 1] = { 'more' }
      return
    end
    local out, keys, chosen, later = {}, {}, nil, false
    for i, token in ipairs(tokens) do
      local waiter = token == head and front
      if not waiter then
        waiter, later = read_waiter(records[i])
      end
      if later then
        break
      end
      out[#out + 1] = token
      if waiter and waiter.key ~= '' then
        keys[#keys + 1] = 'k:' .. waiter.key
      end
      if waiter and lives(waiter, now) then
        chosen = waiter
        break
      end
    end
    if #out > 0 then
      take_out(out, keys)
    end
    if later then
      return
    end
    if chosen then
      return pass(out[#out], chosen, fence, now, stale, records[#out + 1])
    end
    cleared = cleared + #out
    tokens = redis.call('ZRANGE', queue, 0, CHUNK - 1)
    records = #tokens > 0 and redis.call('HMGET', waiters, unpack(tokens))
  end
end

-- Clears away dead tickets of a full queue, and answers how many: they must not keep out the living
-- until their turn comes. Who asks again looks at another part of a long queue.
local function clear_away(count, now, us)
  local from, out, keys = us % math.max(1, count - CHUNK + 1), {}, {}
  local tokens = redis.call('ZRANGE', queue, from, from + CHUNK - 1)
  for i, text in ipairs(redis.call('HMGET', waiters, unpack(tokens))) do
    local waiter, later = read_waiter(text)
    if not later and not (waiter and lives(waiter, now)) then
      out[#out + 1] = tokens[i]
      if waiter and waiter.key ~= '' then
        keys[#keys + 1] = 'k:' .. waiter.key
      end
    end
  end
  if #out > 0 then
    take_out(out, keys)
  end
  return #out
end
