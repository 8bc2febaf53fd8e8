-- Finds the recipient of a lease. The script that imports this part names the key `info`.

-- The recipient of the living lease of a token: until the lease is adopted, the attempt that was granted it.
local function recipient_of(token)
  return redis.call('HMGET', info, 'recipient')[1] or token
end
