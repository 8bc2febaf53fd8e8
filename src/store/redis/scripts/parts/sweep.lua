-- Clears dead tickets out of the queue. The script that imports it names the keys `name` and `wait`.

-- In how many places one script looks for those who have left: a few milliseconds.
local MOST_SWEPT = 2048
-- The key that says how many have left a long queue whose ids are in it yet, by and large.
local gone = name .. 'gone'

-- Whether somebody was queued there until now, be its gateway alive or not.
local function stands(body, us)
  return is_queued(body) and ticket_ends(body) > us
end

-- Takes the dead out of so many places, from an index on, and answers how many they were. O(n) in the length
-- of the queue, but for each place it is a single command of Redis.
local function sweep(from, places, us, is_there)
  local dead = 0
  for i, ticket in ipairs(redis.call('LRANGE', wait, from, from + places - 1)) do
    -- As much of it as it takes to judge and to bury it: what it is to be granted with may be long. What is
    -- of another type stays: the way to it is longer for nobody.
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

-- Takes those who have left it out of a part of a queue of this length, around one place, and answers how many they
-- were and how many of `left` there may be in the rest.
local function sweep_left(left, count, place, us)
  local from = math.max(0, math.min(count, place + MOST_SWEPT / 2) - MOST_SWEPT)
  local dead = sweep(from, MOST_SWEPT, us, stands)
  left = math.max(0, left - dead)
  if count <= MOST_SWEPT then
    -- It was the whole queue. The turn of the others came meanwhile, which is not counted.
    left = 0
  elseif dead * 64 < MOST_SWEPT then
    -- Few: the turn of the others came, or they stand elsewhere. Each who leaves would look again.
    left = math.floor(left * 3 / 4)
  end
  return dead, left
end

-- How many have left whose ids are in the queue yet. What is of another type counts for nothing.
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
