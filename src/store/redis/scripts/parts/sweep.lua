-- Removes dead tickets from the queue. The script that imports this part names the keys `name` and `wait`.

-- In a queue of more waiters than this, searching for an id costs too much.
local LONG = 512
-- How many positions of a queue one script checks for waiters that have left, which takes a few milliseconds.
local MOST_SWEPT = 2048
-- The key that counts, roughly, the waiters that have left a long queue while their ids are still in it.
local gone = name .. 'gone'

-- Whether a ticket is queued and its wait is not over, whether or not its gateway is alive.
local function stands(body, us)
  return is_queued(body) and ticket_ends(body) > us
end

-- Removes dead tickets from `places` positions, beginning at the index `from`, and answers how many were dead. O(n) in
-- the length of the queue, but with only one command of Redis for each position.
local function sweep(from, places, us, is_there)
  local dead = 0
  for i, ticket in ipairs(redis.call('LRANGE', wait, from, from + places - 1)) do
    -- Reads only the fields that are needed to judge and to bury the ticket, because its metadata may be long. A key of
    -- another type stays in the queue, and is not removed here.
    local body = redis.pcall('GETRANGE', name .. 'of:' .. ticket, ticket_range('state', 'key'))
    if type(body) == 'string' and not is_there(body, us) then
      dead = dead + 1
      redis.call('LSET', wait, from + i - 1, 'dead')
      if is_ticket(body) then
        redis.call('DEL', name .. 'of:' .. ticket)
        bury(ticket, body)
      end
    end
  end
  if dead > 0 then
    redis.call('LREM', wait, dead, 'dead')
  end
  return dead
end

-- Removes waiters that have left from the part of the queue around one position. Answers how many were removed, and how
-- many of `left` may remain in the rest of the queue.
local function sweep_left(left, count, place, us)
  local from = math.max(0, math.min(count, place + MOST_SWEPT / 2) - MOST_SWEPT)
  local dead = sweep(from, MOST_SWEPT, us, stands)
  left = math.max(0, left - dead)
  if count <= MOST_SWEPT then
    -- The whole queue was searched. Waiters of `left` that were not found have been removed when their turn came.
    left = 0
  elseif dead * 64 < MOST_SWEPT then
    -- Few waiters that have left were found: the others had their turn, or are elsewhere in the queue. Without lowering
    -- the count, each waiter that leaves would search again.
    left = math.floor(left * 3 / 4)
  end
  return dead, left
end

-- How many waiters have left while their ids are still in the queue. A key of another type counts as none.
local function left_before()
  local left = redis.pcall('GET', gone)
  return type(left) == 'string' and tonumber(left) or 0
end

local function remember_left(left)
  if left > 0 then
    redis.call('SET', gone, left, 'PX', QUEUE_LASTS)
  else
    redis.call('DEL', gone)
  end
end
