-- Knows whether this node has a vote: only if it has learnt, in this life of its data, how far fences
-- have come. The script that imports it names the key `node`.

-- How far it knows that fences have come, whether or not it has a vote by that.
local function known_top()
  local it = redis.call('HMGET', node, 'top', 'kept')
  return math.max(tonumber(it[1] or nil) or 0, tonumber(it[2] or nil) or 0)
end

-- What it votes by; nothing, if it has not learnt, or only in an earlier run (`''`: no run forgets).
local function read_vote(run)
  local it = redis.call('HMGET', node, 'life', 'run', 'epoch', 'top', 'found')
  local top, epoch = tonumber(it[4] or nil), tonumber(it[3] or nil)
  if it[1] and top and epoch and (run == '' or it[2] == run) then
    -- In another life, or when another node has learnt from this one meanwhile, it is another vote.
    local name = it[1] .. ':' .. string.format('%.0f', epoch)
    return { name = name, epoch = epoch, top = top, found = tonumber(it[5] or nil) }
  end
end
