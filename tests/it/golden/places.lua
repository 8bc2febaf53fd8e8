-- acquire
marks = string.sub(place, 1, 4)
if (string.byte(marks, 4) == 49) then
local alone = place == '' or (string.byte(place, 1) == 120)
local me, late, waits = string.sub(floor, 17, 32), (string.byte(place, 4) == 49), ARGV[7] and tonumber(ARGV[7])
local marks = string.sub(place, 1, 3) .. mark .. string.sub(place, 5)
if seen[1] and not (seen[2] or used or newest or ordered) and string.sub(seen[1], 1, 65) ~= id and not is_shared(seen[1]) then
local left = math.max(0, math.floor((string.sub(lease, 103, 118) - us) / 1000))
local before, token, replaces, ticket = kept_by(kept), string.sub(id, 2, 65), false, nil
local first = is_untold(kept) or ((string.byte(kept, 69) == 50) and before == token)
lease = string.sub(lease, 1, 68) .. answered .. string.sub(lease, 70, 143) .. token .. string.sub(lease, 208)
local waited = is_ticket(ticket) and string.format('%.0f', math.max(0, us - string.sub(ticket, 26, 41))) or '0'
news = news .. field(field(what) .. field(string.sub(waiter, 2, 65)))
send(gateway, what, string.sub(waiter, 2, 65))
if string.sub(ticket, 2, 17) ~= NO_GATEWAY or (string.byte(ticket, 21) == 49) then
notify(string.sub(ticket, 2, 17), 'replaced', other)
local found = type(value) == 'string' and string.sub(value, 1, 65)
return found, ticket, (#value >= 81) and string.sub(value, 66, 81) or string.sub(ticket, 26, 41)
if (string.byte(ticket, 19) == 49) then
redis.call('SET', name .. 'key:' .. string.sub(ticket, 147, 210), 'n' .. older, 'PX', 60000)
notify(string.sub(ticket, 2, 17), 'outdated', older)
local letter, kind = became and string.sub(became, 1, 1), whose and string.sub(whose, 1, 1)
if is_ticket(became) and string.sub(became, 2, 17) == NO_GATEWAY then
if own and string.sub(own, 1, 65) == id then
if used and kept_by(own) ~= string.sub(id, 2, 65) then
local kept = exclusive or share and whose and share.find(string.sub(whose, 2, 66), us)
if kept and used and (string.byte(kept, 68) == 49) and string.sub(kept, 208, 271) == key then
if string.sub(kept, 272, 335) ~= string.sub(ARGV[3], 154, 217) then
local other = whose and string.sub(whose, 2, 66) ~= id and string.sub(whose, 2, 66)
if is_queued(ticket) and string.sub(ticket, 211, 274) == string.sub(ARGV[3], 154, 217) then
local fits = not held or (share and not alone and share.count() < tonumber(string.sub(place, 5, 8)))
return field(news) .. field(string.sub(granted, 71, 86)) .. (slot and field(slot) or '')
if at and other and string.sub(ticket, 211, 274) ~= string.sub(ARGV[3], 154, 217) then
local copies = late or (not other and (string.byte(ticket, 21) == 49))
write_ticket(us, string.sub(ticket, 26, 41), copies)
return queued(us, string.sub(ticket, 26, 41), at, redis.call('LLEN', wait), held)
-- advance
local name, me = string.sub(lock, 1, -5), string.sub(ARGV[1], 17, 32)
local held, left = redis.call('GETRANGE', lock, '0', '134'), redis.call('PTTL', lock)
local of = name .. 'of:' .. string.sub(lease, 1, 65)
if (string.byte(lease, 66) == 112) and redis.call('GETRANGE', of, '1', '16') == me then
news = news .. field('11:provisional64:' .. string.sub(lease, 2, 65))
if (string.byte(held, 1) == 50) and is_untold(held) then
left = math.min(left, math.max(OFTEN, tonumber(string.sub(held, 119, 126)) or OFTEN))
-- ask
local mode, last = string.upper(string.sub(lease, 67, 67)), math.min(ends + BACKSTOP, string.sub(lease, 103, 118))
return string.sub(lease, 1, 66) .. mode .. string.sub(lease, 68, 102) .. last .. string.sub(lease, 119) .. '\n!'
local fence = string.sub(lease, 71, 86)
elseif is_lease(held) and string.sub(held, 71, 86) == ARGV[1] then
local id, asked = string.sub(lease, 1, 65), with_request(lease, ends)
local left = math.max(1, math.floor((string.sub(asked, 103, 118) - us) / 1000))
if not (string.byte(lease, 66) == 114) then
send('all', 'broken', string.sub(id, 2, 65))
-- break
local name, me, news = string.sub(lock, 1, -5), string.sub(ARGV[2], 17, 32), ''
if delivered and (string.byte(lease, 68) == 49) then
redis.call('SET', name .. 'key:' .. string.sub(lease, 208, 271), 'l' .. id, 'PX', 60000)
send('all', 'broken', string.sub(id, 2, 65))
local fence = string.sub(lease, 71, 86)
local replaces = delivered and may_replace(string.sub(lease, 1, 65), 'b')
local id = string.sub(lease, 1, 65)
meant = string.sub(held, 71, 86) == ARGV[3]
local id = string.sub(held, 1, 65)
-- check_fence
if string.sub(lease, 103, 118) > us then
if string.sub(lease, 71, 86) == fence and not is_untold(lease) and not (string.byte(lease, 66) == 114) then
return 'held ' .. lock .. ' ' .. field(string.format('%.0f', string.sub(lease, 103, 118) - us))
elseif string.sub(lease, 71, 86) > fence then
-- confirm
if not (held and (share or is_lease(held))) or string.sub(held, 1, 65) ~= id then
if kept_by(held) ~= string.sub(id, 2, 65) then
held = not (string.byte(held, 66) == 107) and settle_lease(held, us, share, not whole)
-- contention
ticket = is_queued(ticket) and string.sub(ticket, 42, 57) > us and string.match(ticket, '^[^\n]*')
-- fence
and math.max((tonumber(before) or 0) + 1, tonumber(us), string.sub(floor, 1, 16) + 1)
-- gateways
return is_queued(body) and string.sub(body, 42, 57) > us
and (reserved_until(string.sub(body, 66, 74), body) or math.huge) > us / 1000
and is_alive(string.sub(body, 2, 17), granted)
-- give_back
local name, me, news = string.sub(lock, 1, -5), string.sub(ARGV[2], 17, 32), ''
local lease, share, us = is_lease(held) and string.sub(held, 1, 65) == id and held, is_shared(held) and sharing(), nil
local meant = lease and string.sub(lease, 71, 86) == ARGV[4] or ARGV[4] == '' and ARGV[3] ~= '3'
meant = is_ticket(body) and string.sub(body, 2, 17) == me
local keyed = (string.byte(lease, 68) == 49)
local adopted = kept_by(lease) ~= (ARGV[5] or string.sub(id, 2, 65))
local again = not ARGV[5] and keyed and (string.byte(lease, 69) == 49)
local heard = ARGV[3] == '1' and (string.byte(lease, 66) == 104)
if (string.byte(lease, 67) < 97) then
local used = name .. 'key:' .. string.sub(lease, 208, 271)
return 'given_back ' .. id .. ' ' .. field(news) .. field(string.sub(lease, 71, 86))
-- grant_ttl
local hold_limit, now = string.sub(held, 127, 135), math.floor(us / 1000)
if left ~= -1 and ends < string.sub(held, 103, 118) then
return string.sub(held, 1, 102) .. ends .. string.sub(held, 119)
-- hand_over
local used = name .. 'key:' .. string.sub(body, 147, 210)
if not (string.byte(body, 19) == 49) then
if string.sub(body, 2, 17) == NO_GATEWAY and (string.byte(body, 21) == 49) then
return not (string.byte(body, 19) == 49) or select(2, key_of(body)) == 'q' .. id
local gateway, of = string.sub(body, 2, 17), name .. 'of:' .. id
local ttl, limit = tonumber(string.sub(body, 58, 65)), tonumber(string.sub(body, 66, 74))
local reserved = reserved_until(string.sub(body, 66, 74), body)
lasts = math.max(1, math.floor((string.sub(body, 42, 57) - us) / 1000))
local lease = id .. (mine and 'u' or kept and 'k' or 'p') .. string.sub(body, 18, 21) .. fence .. us
.. string.format('%016.0f', us + lasts * 1000) .. string.sub(body, 58)
if (string.byte(body, 21) == 49) then
if (string.byte(body, 19) == 49) then
redis.call('SET', name .. 'key:' .. string.sub(body, 147, 210), 'l' .. id, 'PX', lasts + 60000)
local left = string.sub(body, 42, 57) - us
redis.call('SET', of, 'w' .. string.sub(body, 2), 'PX', math.floor(left / 1000) + 60000)
send(gateway, 'granted', string.sub(id, 2, 65), fence)
local gateway = string.sub(body, 2, 17)
news = news .. field('9:forgotten64:' .. string.sub(id, 2, 65))
send(gateway, 'forgotten', string.sub(id, 2, 65))
local alone = alive and (string.byte(body, 18) == 120)
local fits = alive and (not share or not alone and count < tonumber(string.sub(body, 22, 25)))
-- inspect
if is_queued(body) and string.sub(body, 42, 57) > us then
-- lapse
local gateway = is_ticket(body) and string.sub(body, 2, 17)
if gateway ~= ARGV[2] and (gateway ~= NO_GATEWAY or string.sub(body, 42, 57) > clock()) then
if (string.byte(body, 21) == 49) then
local used = name .. 'key:' .. string.sub(body, 147, 210)
-- lease
return held and (#held >= 207) and (string.byte(held, 1) == 50) and not (string.byte(held, 2) == 42)
and string.find(string.sub(held, 71, 143), '^%d+$') ~= nil
return (string.byte(held, 67) < 97) and tonumber(string.match(held, '\n!(%d+)')) or nil
local recipient = string.sub(held, 144, 207)
return recipient == NO_RECIPIENT and string.sub(held, 2, 65) or recipient
local state = string.sub(held, 66, 66)
local state = type(body) == 'string' and (#body >= 146) and string.sub(body, 1, 1)
return (state == 'q' or state == 'w') and string.find(string.sub(body, 22, 82), '^%d+$') ~= nil
return is_ticket(body) and (string.byte(body, 1) == 113)
-- lease_reply
return asked and string.sub(asked, 1, 16) + 1000 or math.huge
local ends = asked and string.format('%016.0f', math.max(0, string.sub(asked, 1, 16) - now))
reply[n + 8] = asked and ends .. string.sub(asked, 17) or ''
-- leave
local name, me, news = string.sub(lock, 1, -5), string.sub(ARGV[2], 17, 32), ''
local lease = is_lease(held) and string.sub(held, 1, 65) == id and held
if (string.byte(lease, 66) == 107) then
elseif kept_by(lease) ~= string.sub(id, 2, 65) then
elseif is_queued(body) and ARGV[3] ~= '' and (string.byte(body, 19) == 49)
local kept = 'q' .. NO_GATEWAY .. string.sub(body, 18, 41) .. ends .. string.sub(body, 58)
redis.call('SET', name .. 'key:' .. string.sub(body, 147, 210), 'q' .. id, 'PX', ARGV[3] + 60000)
if stood and not (string.byte(body, 21) == 49) then
-- order
return type(record) == 'string' and (#record >= 32) and record or nil
return record and string.sub(record, 1, 16) > order and record or nil
return record and (#record >= 97) and string.sub(record, 33, 97) == string.sub(lease, 1, 65)
local previous = record and string.sub(record, 1, 16) or NO_ORDER
local previous = string.sub(record, 17, 32)
-- quorum_ask
local before = record[3] and tonumber(string.sub(record[3], 1, 16))
-- release
local held = redis.call('GETRANGE', lock, '0', '270')
local ours = string.sub(held, 1, 65) == id
local recipient = string.sub(held, 144, 207)
recipient = string.byte(recipient) == 32 and string.sub(id, 2, 65) or recipient
local rests = ours and used and string.sub(held, 136, 143) ~= '00000000'
if ours and (not used or (string.byte(held, 66) == 112) or (string.byte(held, 66) == 107)) then
return 'released ' .. id .. ' 0:32:' .. string.sub(held, 71, 102)
if (string.byte(lease, 67) < 97) then
local lasts, us, ended = (rest or 0) + 60000, '', '32:' .. string.sub(lease, 71, 102)
local min_hold = used and string.sub(lease, 136, 143) ~= '00000000' and '1' or '0'
ended = '49:' .. string.sub(lease, 71, 102) .. us .. min_hold
local keyed = (string.byte(lease, 68) == 49)
redis.call('SET', name .. 'key:' .. string.sub(lease, 208, 271), 'l' .. id, 'PX', lasts)
local left = us - string.sub(lease, 87, 102) < 5000000 and 0 or (string.sub(lease, 103, 118) - us) / 1000
local counter, floor, me, news = KEYS[2], ARGV[2], string.sub(ARGV[2], 17, 32), ''
return 'released ' .. id .. ' ' .. field(news) .. (ended or '32:' .. string.sub(lease, 71, 102))
local ended = '32:' .. string.sub(held, 71, 102)
-- renew
local mine, since, ttl, left = (share or is_lease(held)) and string.sub(held, 1, 65) == id, nil, nil, 0
since = string.sub(held, 87, 102)
ttl = math.min(tonumber(ARGV[2]) or tonumber(string.sub(held, 119, 126)), tonumber(ARGV[3]) or math.huge)
local was, ends = string.sub(held, 103, 118), string.format('%016.0f', us + left * 1000)
local kept = as_kept and string.sub(as_kept, 103, 118)
recipient, ttl = adopts and before or string.sub(held, 144, 207), string.format('%08.0f', ttl)
held = string.sub(held, 1, 65) .. 'h' .. string.sub(held, 67, 102) .. ends .. ttl .. string.sub(held, 127, 143) .. recipient .. string.sub(held, 208)
if whole and (string.byte(held, 68) == 49) then
redis.call('SET', name .. 'key:' .. string.sub(held, 208, 271), 'l' .. id, 'PX', left + 60000)
-- rest
local least = tonumber(string.sub(lease, 136, 143)) or 0
local left = math.min(least, math.ceil((string.sub(lease, 87, 102) - us) / 1000) + least)
if left <= 0 or (string.byte(lease, 67) < 97) then
local id, ends = REST .. string.sub(lease, 71, 86), string.format('%016.0f', us + left * 1000)
lease = id .. 'r' .. string.sub(lease, 67, 67) .. keyed .. string.sub(lease, 69, 102) .. ends .. string.sub(lease, 119, 143) .. recipient .. string.sub(lease, 208)
return string.sub(lease, 1, 207) .. '\n' .. slot, left
-- restore
local ends = shifted(string.sub(asked, 1, 16))
record.asked = ends .. string.sub(asked, 17)
-- send
local gateway, ms = is_queued(body) and string.sub(body, 2, 17) or NO_GATEWAY, string.format('%.0f', lasts)
-- set_order
local number, became = record and string.sub(record, 1, 16) or '', redis.call('GET', of)
-- settle_lease
if (string.byte(held, 66) == 104) then
local id, since = string.sub(held, 1, 65), untold and us or string.sub(held, 87, 102)
local left = time_left(held, since, us, tonumber(string.sub(held, 119, 126)))
local lease = id .. 'h' .. string.sub(held, 67, 86) .. since .. ends .. string.sub(held, 119)
if (string.byte(held, 70) == 49) then
if (string.byte(held, 68) == 49) then
redis.call('SET', name .. 'key:' .. string.sub(held, 208, 271), 'l' .. id, 'PX', left + 60000)
-- shared
local id, ends = string.sub(lease, 1, 65), string.sub(lease, 103, 118)
local left, has_slot = math.max(1, math.ceil((ends - us) / 1000)), (string.byte(lease, 67) == 110)
local id, ends, slot = string.sub(lease, 1, 65), string.sub(lease, 103, 118), string.match(lease, '\n(%d+)$')
redis.call('ZADD', ids, string.sub(rest, 103, 118), string.sub(rest, 1, 65))
share.end_with_last(us, string.sub(rest, 1, 65))
return lease and string.sub(lease, 103, 118) > us and lease or nil
redis.call('HSET', leases, string.sub(lease, 1, 65), lease)
local id = string.sub(lease, 1, 65)
redis.call('ZADD', ids, string.sub(lease, 103, 118), id)
local slot = (string.byte(lease, 67) == 110) and redis.call('BITPOS', slots, '0')
redis.pcall('GETRANGE', name .. 'of:' .. head, '0', '145')
local limit = is_queued(body) and not (string.byte(body, 18) == 120) and tonumber(string.sub(body, 22, 25)) or 1
if string.sub(lease, 71, 86) == fence and string.sub(lease, 103, 118) > us then
-- sweep
return is_queued(body) and string.sub(body, 42, 57) > us
local body = redis.pcall('GETRANGE', name .. 'of:' .. ticket, '0', '209')
