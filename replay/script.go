package replay

import "github.com/redis/go-redis/v9"

// heartbeat notes that a worker lives and returns who else does.
//
// KEYS[1] the group's workers: a hash of worker id to JSON, whose first member,
// until, is the unix time in ms at which the worker counts as gone.
// ARGV[1] worker id, ARGV[2] the rest of its JSON behind until, ARGV[3] ms it is
// good for.
// Returns the id and the mark of each that lives, itself included; a mark is empty
// if it has none behind until. Those that are gone are removed.
var heartbeat = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('{"until":%.0f,%s', now + ARGV[3], ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 2)
local live = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till, rest = string.match(all[i + 1], '^{"until":(%d+),(.*)')
  if till and tonumber(till) > now then
    live[#live + 1] = all[i]
    live[#live + 1] = string.match(rest, '^"mark":"(%w*)"') or ''
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return live
`)

// renew prolongs leases.
//
// KEYS leases. ARGV[1] worker id, ARGV[2] ms.
// Returns for each key 1 if the worker holds it, else 0. There is no SET in it:
// that is refused when Redis is out of memory, and all leases would end.
var renew = redis.NewScript(`
local held = {}
for i = 1, #KEYS do
  held[i] = 0
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    held[i] = redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return held
`)

// acquire takes leases that are free, or the worker's already: the answer that it
// had them may have been lost.
//
// KEYS leases. ARGV[1] worker id, ARGV[2] ms, ARGV[3] how many at most.
// Returns the indexes of those it now holds, from 1.
var acquire = redis.NewScript(`
local taken = {}
for i = 1, #KEYS do
  if #taken >= tonumber(ARGV[3]) then break end
  local holder = redis.call('GET', KEYS[i])
  if not holder then
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    taken[#taken + 1] = i
  elseif holder == ARGV[1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
    taken[#taken + 1] = i
  end
end
return taken
`)

// release gives leases back.
//
// KEYS leases. ARGV[1] worker id.
// Returns how many it held.
var release = redis.NewScript(`
local n = 0
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    n = n + redis.call('DEL', KEYS[i])
  end
end
return n
`)

// note records an entry's progress, beside what is recorded already.
//
// KEYS[1] stream, KEYS[2] progress hash. ARGV[1] group, ARGV[2] entry id, ARGV[3…]
// lines, each a listener's name or, of one that was given up, its name, a space
// and the error.
// Returns 1; 0 if the entry is not pending: it has no record then.
var note = redis.NewScript(`
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then
  redis.call('HDEL', KEYS[2], ARGV[2])
  return 0
end
local lines = {}
local known = {}
for line in string.gmatch(redis.call('HGET', KEYS[2], ARGV[2]) or '', '[^\n]+') do
  lines[#lines + 1] = line
  known[string.match(line, '^[^ ]+')] = true
end
for i = 3, #ARGV do
  if not known[string.match(ARGV[i], '^[^ ]+')] then
    lines[#lines + 1] = ARGV[i]
  end
end
redis.call('HSET', KEYS[2], ARGV[2], table.concat(lines, '\n'))
return 1
`)

// settle acknowledges entries that have a record of their progress.
//
// KEYS[1] stream, KEYS[2] progress hash. ARGV[1] group, ARGV[2…] entry ids.
// Returns how many were pending.
var settle = redis.NewScript(`
local n = 0
for i = 2, #ARGV do
  n = n + redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i])
end
return n
`)

// restart notes that entries are about to be run again.
//
// KEYS[1] lease, KEYS[2] stream. ARGV[1] worker id, ARGV[2] group, ARGV[3…] entry
// ids, each followed by its number of deliveries, the coming one included, and the
// consumer it is to be pending for.
// Returns which of the entries are pending, by number from 1; {0} if the worker
// does not hold the lease: nothing was done.
var restart = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {0}
end
local due = {}
for i = 3, #ARGV, 3 do
  local held = redis.call('XCLAIM', KEYS[2], ARGV[2], ARGV[i + 2], 0, ARGV[i], 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
  if #held == 1 then
    due[#due + 1] = i / 3
  end
end
return due
`)

// bury makes an entry a dead letter: the entry's own fields as they are in the
// stream, and behind them id, stream, group, consumer, deliveries, listeners,
// error and failed (ms).
//
// KEYS[1] stream, KEYS[2] dead letters, KEYS[3] progress hash, KEYS[4] lease.
// ARGV[1] group, ARGV[2] entry id, ARGV[3] worker id, ARGV[4] listeners, ARGV[5]
// error, ARGV[6] how many letters are kept, ARGV[7] for how many ms, ARGV[8…] the
// entry's fields, to be used if it is no longer in the stream.
// Returns {'stored', letter's id, letters dropped for the bounds}; {'acked'} if the
// entry is not pending, {'lost'} if the worker does not hold the lease, {'gone'} if
// the entry is no longer in the stream and ARGV has no fields. In these cases, and
// if the letter can't be written, nothing has changed, and the entry is as it was.
var bury = redis.NewScript(`
if redis.call('GET', KEYS[4]) ~= ARGV[3] then
  return {'lost'}
end
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if #pending == 0 then
  redis.call('HDEL', KEYS[3], ARGV[2])
  return {'acked'}
end
local own = {}
local found = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
if #found > 0 then
  own = found[1][2]
elseif #ARGV > 7 then
  for i = 8, #ARGV do
    own[#own + 1] = ARGV[i]
  end
else
  return {'gone'}
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local letter = {}
for i = 1, math.min(#own, 7000) do -- what a script can hand on
  letter[i] = own[i]
end
for _, word in ipairs({
  'id', ARGV[2], 'stream', KEYS[1], 'group', ARGV[1], 'consumer', pending[1][2], 'deliveries', pending[1][4],
  'listeners', ARGV[4], 'error', ARGV[5], 'failed', string.format('%.0f', now),
}) do
  letter[#letter + 1] = word
end
local id = redis.call('XADD', KEYS[2], '*', unpack(letter))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[2])
local dropped = redis.call('XTRIM', KEYS[2], 'MAXLEN', ARGV[6])
dropped = dropped + redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f', math.max(0, now - ARGV[7])))
return {'stored', id, dropped}
`)

// expire drops dead letters that are too old.
//
// KEYS[1] dead letters. ARGV[1] for how many ms they are kept.
// Returns how many were dropped.
var expire = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', math.max(0, now - ARGV[1])))
`)

// handBack gives what is pending for a worker to whoever gets the lane next,
// without counting a delivery, and removes the worker's consumers, which hold
// nothing then: removing one that does would drop its pending entries.
// When all is given back the lease is, too.
//
// KEYS[1] lease, KEYS[2…] the lane's streams. ARGV[1] worker id, ARGV[2] group,
// ARGV[3] how many entries at most, ARGV[4…] entries whose deliveries are not one
// less than they are counted: number of the stream from 1, a colon and the entry
// id; each followed by the deliveries.
// Returns {entries given back, 1 if there are more}; {-1, 0} if the worker does
// not hold the lease: nothing was done.
var handBack = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {-1, 0}
end
local counts = {}
for i = 4, #ARGV, 2 do
  counts[ARGV[i]] = ARGV[i + 1]
end
local room = tonumber(ARGV[3])
local given, more = 0, 0
for k = 2, #KEYS do
  for _, consumer in ipairs({ARGV[1], ARGV[1] .. '!'}) do
    local pending = redis.pcall('XPENDING', KEYS[k], ARGV[2], '-', '+', room + 1, consumer)
    if not pending.err then
      local n = math.min(#pending, room)
      for i = 1, n do
        local id = pending[i][1]
        local count = counts[(k - 1) .. ':' .. id] or math.max(0, pending[i][4] - 1)
        redis.call('XCLAIM', KEYS[k], ARGV[2], '-', 0, id, 'IDLE', 86400000, 'RETRYCOUNT', count, 'JUSTID')
      end
      given = given + n
      room = room - n
      if #pending > n then
        more = 1
      else
        redis.call('XGROUP', 'DELCONSUMER', KEYS[k], ARGV[2], consumer)
      end
    end
  end
end
if more == 0 then
  redis.call('DEL', KEYS[1])
end
return {given, more}
`)

// sweep removes consumers that hold nothing, other workers' that are gone. One that
// lives is made again by its next read.
//
// KEYS streams. ARGV[1] group, ARGV[2] ms without a sign of life, ARGV[3…]
// consumers to be kept.
// Returns how many were removed.
var sweep = redis.NewScript(`
local keep = {}
for i = 3, #ARGV do
  keep[ARGV[i]] = true
end
local n = 0
for i = 1, #KEYS do
  local all = redis.pcall('XINFO', 'CONSUMERS', KEYS[i], ARGV[1])
  if not all.err then
    for _, about in ipairs(all) do
      local c = {}
      for j = 1, #about, 2 do
        c[about[j]] = about[j + 1]
      end
      if c.pending == 0 and c.idle > tonumber(ARGV[2]) and not keep[c.name] then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], c.name)
        n = n + 1
      end
    end
  end
end
return n
`)
