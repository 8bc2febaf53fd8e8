#!lua flags=allow-oom
-- Teach: says to which fence this node of a quorum has come, for another that has lost its data. What it
-- was asked to propose before, it does not accept any more: the node that learns would not know of it.
--
-- KEYS
--   1  node  hash: what this node has learnt, and in which life
-- ARGV
--   1  the life of the node that learns
--   2  the run of this server, or empty if no run of it forgets
-- Reply
--   {taught, ARGV 1, fence}    the largest that it has accepted, or has learnt of
--   {unlearnt, ARGV 1, fence, life}  it has not learnt itself in this life; it had come so far when it last
--                              had. The life is empty if none has begun in this run
-- Replay
--   Says it again.
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
