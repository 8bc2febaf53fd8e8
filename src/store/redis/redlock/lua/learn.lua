#!lua flags=allow-oom
-- Learn: begins a new life of a node of a quorum that has lost its data, or may have, and says whether the node has
-- learnt the largest granted fence.
--
-- KEYS
--   1  node  hash: what this node has learnt, and in which life
-- ARGV
--   1  a new life
--   2  the run of this server, or empty if no run of it forgets
--   3  1 to begin a life if there is none, 0 only to look
-- Reply
--   {learnt, ARGV 1, ms}      time since the node was found without its data; -1: it never was
--   {unlearnt, ARGV 1, life}  the node has not learnt in this life; the life is empty if there is none
-- Replay
--   Answers the life that has begun. A fence that was learnt for the node counts for that life alone.
-- Clock
--   TIME of this node, once.
-- Cluster
--   One key.
-- Cost
--   O(1).

local node = KEYS[1]
local new, run = ARGV[1], ARGV[2]

-- import time
-- import vote

local now = instants(redis.call('TIME'))
local vote = read_vote(run)
if vote then
  return { 'learnt', new, vote.found and math.max(0, now - vote.found) or -1 }
end
local it = redis.call('HMGET', node, 'life', 'run', 'top')
if it[1] and not it[3] and (run == '' or it[2] == run) then
  return { 'unlearnt', new, it[1] }
end
if ARGV[3] == '0' then
  return { 'unlearnt', new, '' }
end
-- Data that was kept over a restart names an earlier run of the server. Then the age of the new run tells the time
-- since the restart.
local restarted = it[1] and it[2] ~= run
-- The largest fence that the node knew is kept: the node must not learn a smaller fence.
local kept = known_top()
redis.call('DEL', node)
redis.call('HSET', node, 'life', new, 'run', run, 'epoch', '0', 'kept', string.format('%.0f', kept))
if not restarted then
  redis.call('HSET', node, 'found', now)
end
return { 'unlearnt', new, new }
