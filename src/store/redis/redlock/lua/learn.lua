#!lua flags=allow-oom
-- Learn: begins the life of a node of a quorum that has lost its data, or may have, and says whether it
-- has learnt how far fences have come.
--
-- KEYS
--   1  node  hash: what this node has learnt, and in which life
-- ARGV
--   1  a new life
--   2  the run of this server, or empty if no run of it forgets
--   3  1 to begin a life where there is none, 0 only to look
-- Reply
--   {learnt, ARGV 1, ms}      for so long since it was found without its data; -1: it never was
--   {unlearnt, ARGV 1, life}  in this life it has not; the life is empty if there is none
-- Replay
--   Answers the life that has begun. What somebody has learnt counts for that life alone.
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
-- What was kept over a restart tells that by its run; for how long that run lasts is known.
local restarted = it[1] and it[2] ~= run
-- How far it had come it has not passed back: less than that nobody need learn.
local kept = known_top()
redis.call('DEL', node)
redis.call('HSET', node, 'life', new, 'run', run, 'epoch', '0', 'kept', string.format('%.0f', kept))
if not restarted then
  redis.call('HSET', node, 'found', now)
end
return { 'unlearnt', new, new }
