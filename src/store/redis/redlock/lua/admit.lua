#!lua flags=allow-oom
-- Admit: gives a node of a quorum its vote, when the largest granted fence is known.
--
-- KEYS
--   1  node  hash: what this node has learnt, and in which life
-- ARGV
--   1  the life for which the other nodes were asked
--   2  the largest fence that the others have accepted
-- Reply
--   {admitted, ARGV 1}  the node has a vote, by this command or by that of another gateway
--   {over, ARGV 1}      that life is over: the node has lost its data again
-- Replay
--   Answers the same, and does not change the fence that the node has accepted since.
-- Clock
--   None.
-- Cluster
--   One key.
-- Cost
--   O(1).

local node = KEYS[1]
local life = ARGV[1]

-- import vote

local it = redis.call('HMGET', node, 'life', 'top')
if it[1] ~= life then
  return { 'over', life }
end
if not it[2] then
  redis.call('HSET', node, 'top', string.format('%.0f', math.max(known_top(), ARGV[2])))
end
return { 'admitted', life }
