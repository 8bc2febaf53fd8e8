#!lua flags=allow-oom
-- Teach: tells a node that has lost its data the largest fence of this node of a quorum. From then on this node does
-- not accept a fence that it was asked to propose before: the node that learns would not know of it.
--
-- KEYS
--   1  node  hash: what this node has learnt, and in which life
-- ARGV
--   1  the life of the node that learns
--   2  the run of this server, or empty if no run of it forgets
-- Reply
--   {taught, ARGV 1, fence}    the largest fence that this node has accepted, or has learnt of
--   {unlearnt, ARGV 1, fence, life}  this node has not learnt itself in this life; the largest fence that it knew
--                              when it last had. The life is empty if none has begun in this run
-- Replay
--   Answers the largest fence again.
-- Clock
--   None.
-- Cluster
--   One key.
-- Cost
--   O(1).

local node = KEYS[1]
local life = ARGV[1]

-- import vote

local vote = read_vote(ARGV[2])
if not vote then
  local its = redis.call('HMGET', node, 'life', 'run')
  local of_this_run = its[1] and (ARGV[2] == '' or its[2] == ARGV[2])
  return { 'unlearnt', life, string.format('%.0f', known_top()), of_this_run and its[1] or '' }
end
redis.call('HSET', node, 'epoch', string.format('%.0f', vote.epoch + 1))
return { 'taught', life, string.format('%.0f', vote.top) }
