-- Tries which commands the user is allowed to run. The script that imports this part names `probe`, a key that belongs
-- to no lock and is deleted before the script ends, and `channel`, a channel that belongs to no lock.

-- Runs a command, and answers the error with which Redis refused it, or an empty text.
local function refusal(command)
  local answer = redis.pcall(unpack(command))
  return type(answer) == 'table' and answer.err or ''
end

-- The reply of a probe: the time, the error of PUBLISH, and the name and the error of each command that was tried.
local function tried(commands)
  local time = redis.pcall('TIME')
  local reply = {
    'probe', probe, tonumber(time[1]) or 0, tonumber(time[2]) or 0,
    refusal({ 'PUBLISH', channel, '' }), 'TIME', time.err or '',
  }
  for _, command in ipairs(commands) do
    reply[#reply + 1] = command[1]
    reply[#reply + 1] = refusal(command)
  end
  return reply
end
