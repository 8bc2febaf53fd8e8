-- The fields of a lease record that a node takes over when it takes the lease from another node. The other fields tell
-- how a node itself took part in the acquire, or are gone once the lease was answered again.
local COPIED = {
  'v', 'lock', 'fence', 'ttl', 'acquired', 'hold', 'owner', 'metadata', 'idem', 'finger', 'salt', 'recipient',
  'collector', 'asked',
}
