-- Tries commands. The script that imports it names the keys `probe`, which is of no lock and gone when the script
-- ends, and `channel`, which is of no lock either.

-- Why a command was refused, or nothing.
local function refusal(command)
  local answer = redis.pcall(unpack(command))
  return type(answer) == 'table' and answer.err or ''
end

-- The reply of a probe: the time, the error of PUBLISH, and name and error of each command.
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
