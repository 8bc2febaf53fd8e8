-- Finds whether this node has a vote. A node votes only if it has learnt the largest granted fence in this life of its
-- data. The script that imports this part names the key `node`.

-- The number in a text that a script has written, if Lua counts it exactly; else `nil`.
local function whole_number(text)
  local number = text and string.find(text, '^%d+$') and tonumber(text)
  return number and number <= 9007199254740991 and number or nil
end

-- The largest fence that this node knows, whether or not the node has a vote.
local function known_top()
  local it = redis.call('HMGET', node, 'top', 'kept')
  return math.max(whole_number(it[1]) or 0, whole_number(it[2]) or 0)
end

-- The vote of this node; `nil` if the node has not learnt the largest fence, or only in an earlier run of its server
-- (`''`: no run forgets).
local function read_vote(run)
  local it = redis.call('HMGET', node, 'life', 'run', 'epoch', 'top', 'found')
  local top, epoch, found = whole_number(it[4]), whole_number(it[3]), whole_number(it[5])
  -- If a value is no number that a script wrote, another program wrote it, and the node must learn again.
  local ours = top and epoch and (found or not it[5])
  if it[1] and ours and (run == '' or it[2] == run) then
    -- The vote gets another name in another life, and when another node has learnt from this node.
    local name = it[1] .. ':' .. string.format('%.0f', epoch)
    return { name = name, epoch = epoch, top = top, found = found }
  end
end
