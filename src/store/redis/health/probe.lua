-- Probe: finds out which of the commands that a gateway uses this user may run.
--
-- KEYS
--   1  probe  a key of no lock; gone when the script ends
-- ARGV
--   1  a channel of no lock
-- Reply
--   {probe, KEYS 1, seconds, microseconds, error of PUBLISH or empty, name, error, name, error ..}
-- Replay
--   Probes again.
-- Clock
--   TIME of this Redis, once.
-- Cluster
--   One key.
-- Cost
--   O(1).

local probe = KEYS[1]
local commands = {
  { 'SET', probe, '', 'PX', '1000' }, { 'GET', probe }, { 'PTTL', probe },
  { 'GETRANGE', probe, '0', '0' }, { 'EXISTS', probe }, { 'SCAN', '0', 'COUNT', '1' },
  { 'PEXPIRE', probe, '1000' }, { 'PEXPIREAT', probe, '1' },
  { 'HSET', probe, 'f', '' }, { 'HMGET', probe, 'f' }, { 'HLEN', probe }, { 'HDEL', probe, 'f' },
  { 'ZADD', probe, '1', 'm' }, { 'ZSCORE', probe, 'm' }, { 'ZRANGE', probe, '0', '0' },
  { 'ZREM', probe, 'm' },
  { 'MGET', probe }, { 'SET', probe, '', 'GET' }, { 'SETRANGE', probe, '0', '1' },
  { 'PEXPIRE', probe, '1000', 'LT' }, { 'GETDEL', probe },
  { 'RPUSH', probe, 'm', 'm' }, { 'LPUSH', probe, 'm' }, { 'LPOS', probe, 'm' },
  { 'LSET', probe, '0', 'm' }, { 'LINDEX', probe, '0' }, { 'LRANGE', probe, '0', '0' },
  { 'LLEN', probe }, { 'LREM', probe, '1', 'm' }, { 'LPOP', probe }, { 'RPOP', probe },
  { 'DEL', probe },
}
local function refusal(command)
  local answer = redis.pcall(unpack(command))
  return type(answer) == 'table' and answer.err or ''
end

local time = redis.pcall('TIME')
local reply = {
  'probe', probe, tonumber(time[1]) or 0, tonumber(time[2]) or 0,
  refusal({ 'PUBLISH', ARGV[1], '' }), 'TIME', time.err or '',
}
for _, command in ipairs(commands) do
  reply[#reply + 1] = command[1]
  reply[#reply + 1] = refusal(command)
end
-- A key that is named by another one, as those of an attempt are.
reply[#reply + 1] = 'keys that are not declared'
reply[#reply + 1] = refusal({ 'EXISTS', probe .. ':of' })
return reply
