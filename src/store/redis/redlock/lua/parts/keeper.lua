-- Who keeps a lease. The script that imports it names the key `info`.

-- Who keeps the living lease of a token: until it is adopted, the attempt that it was granted to.
local function keeper_of(token)
  return redis.call('HMGET', info, 'keeper')[1] or token
end
