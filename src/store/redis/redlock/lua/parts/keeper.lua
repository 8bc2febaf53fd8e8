-- Finds the keeper of a lease. The script that imports this part names the key `info`.

-- The keeper of the living lease of a token: until the lease is adopted, the attempt that was granted it.
local function keeper_of(token)
  return redis.call('HMGET', info, 'keeper')[1] or token
end
