package replay

import "github.com/redis/go-redis/v9"

// heartbeat notes that a worker lives and returns who else does.
//
// KEYS[1] the group's workers: a hash of worker id to JSON, whose first member,
// until, is the unix time in ms at which the worker counts as gone.
// ARGV[1] worker id, ARGV[2] the rest of its JSON behind until, ARGV[3] ms it is
// good for.
// Returns the ids of all that live, itself included. Those that are gone are
// removed.
var heartbeat = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('{"until":%.0f,%s', now + ARGV[3], ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 2)
local live = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till = tonumber(string.match(all[i + 1], '^{"until":(%d+)') or 0)
  if till > now then
    live[#live + 1] = all[i]
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

// retire removes a consumer that holds nothing; removing one that does would drop
// its pending entries.
//
// KEYS streams. ARGV[1] group, ARGV[2] consumer.
// Returns how many streams it was removed from.
var retire = redis.NewScript(`
local n = 0
for i = 1, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], ARGV[1], '-', '+', 1, ARGV[2])
  if not pending.err and #pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], ARGV[2])
    n = n + 1
  end
end
return n
`)
