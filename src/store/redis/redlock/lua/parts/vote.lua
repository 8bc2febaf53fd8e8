-- Knows whether this node has a vote: only if it has learnt, in this life of its data, how far fences
-- have come. The script that imports it names the key `node`.

-- A whole number that this one counts on exactly, as a script has written it; else nothing.
local function whole_number(text)
  local number = text and string.find(text, '^%d+$') and tonumber(text)
  return number and number <= 9007199254740991 and number or nil
end

-- How far it knows that fences have come, whether or not it has a vote by that.
local function known_top()
  local it = redis.call('HMGET', node, 'top', 'kept')
  return math.max(whole_number(it[1]) or 0, whole_number(it[2]) or 0)
end

-- What it votes by; nothing, if it has not learnt, or only in an earlier run (`''`: no run forgets).
local function read_vote(run)
  local it = redis.call('HMGET', node, 'life', 'run', 'epoch', 'top', 'found')
  local top, epoch, found = whole_number(it[4]), whole_number(it[3]), whole_number(it[5])
  -- What is no number of ours somebody else has written: it learns anew.
  local ours = top and epoch and (found or not it[5])
  if it[1] and ours and (run == '' or it[2] == run) then
    -- In another life, or when another node has learnt from this one meanwhile, it is another vote.
    local name = it[1] .. ':' .. string.format('%.0f', epoch)
    return { name = name, epoch = epoch, top = top, found = found }
  end
end
