package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// errFenced ends a tenure: the shard is another process's.
var errFenced = errors.New("the shard was taken over by another process")

// errWentBack ends a tenure: Redis no longer has what it had confirmed.
var errWentBack = errors.New("redis has gone back behind what it had confirmed")

// A record is a shard's session record.
type record struct {
	fence     string
	commit    int64
	sessionID string
	resumeURL string
	sequence  int64
	intents   int64
	saved     time.Time // zero: never
}

// takeoverScript makes the caller the shard's owner, if it has none or it is
// the caller already, and raises the fence.
//
//	KEYS  owner, session
//	ARGV  process, ttl (ms), fence
//	→ {0, owner}: another process's
//	→ {1, field, value, …}: ours, with the whole session record
var takeoverScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {0, owner} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'fence', ARGV[3])
redis.call('HSETNX', KEYS[2], 'commit', '0')
local reply = redis.call('HGETALL', KEYS[2])
table.insert(reply, 1, 1)
return reply`)

// renewScript prolongs an ownership. It sets the owner anew only if the key has
// run out and nobody has raised the fence: a SET is refused when Redis is out of
// memory, PEXPIRE is not.
//
//	KEYS  owner, session
//	ARGV  process, ttl (ms), fence
//	→ 1: still ours; 0: another process's
var renewScript = redis.NewScript(`
if redis.call('HGET', KEYS[2], 'fence') ~= ARGV[3] then return 0 end
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return 1
end
if owner then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

// releaseScript gives an ownership up.
//
//	KEYS  owner
//	ARGV  process
//	→ 1: released; 0: it was not the caller's
var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)

// takeover tries to become the owner of a shard. owner names the process that
// holds it instead; it is empty on success.
func takeover(ctx context.Context, rdb redis.Scripter, keys wire.Shard, process string, ttl time.Duration) (r record, owner string, err error) {
	fence := rand.Text()
	reply, err := takeoverScript.Run(ctx, rdb, []string{keys.Owner(), keys.Session()}, process, ttl.Milliseconds(), fence).Slice()
	if err != nil {
		return record{}, "", fmt.Errorf("take over shard %d: %w", keys.ID, err)
	}
	if len(reply) == 2 && reply[0] == int64(0) {
		owner, _ := reply[1].(string)
		return record{}, owner, nil
	}
	fields := make(map[string]string)
	for i := 1; i+1 < len(reply); i += 2 {
		field, _ := reply[i].(string)
		fields[field], _ = reply[i+1].(string)
	}
	r, err = parseRecord(fields)
	if err != nil {
		return record{}, "", fmt.Errorf("session record at %q: %w", keys.Session(), err)
	}
	return r, "", nil
}

func parseRecord(fields map[string]string) (r record, err error) {
	number := func(field string) int64 {
		if fields[field] == "" {
			return 0
		}
		n, bad := strconv.ParseInt(fields[field], 10, 64)
		if bad != nil && err == nil {
			err = fmt.Errorf("field %q is %q, want a decimal number", field, fields[field])
		}
		return n
	}
	r = record{
		fence:     fields[wire.SessionFence],
		commit:    number(wire.SessionCommit),
		sessionID: fields[wire.SessionID],
		resumeURL: fields[wire.SessionResumeURL],
		sequence:  number(wire.SessionSequence),
		intents:   number(wire.SessionIntents),
	}
	if ms := number(wire.SessionSaved); ms != 0 {
		r.saved = time.UnixMilli(ms)
	}
	return r, err
}

// renew prolongs the ownership and reports whether there is one.
func renew(ctx context.Context, rdb redis.Scripter, keys wire.Shard, process, fence string, ttl time.Duration) (bool, error) {
	n, err := renewScript.Run(ctx, rdb, []string{keys.Owner(), keys.Session()}, process, ttl.Milliseconds(), fence).Int()
	if err != nil {
		return false, fmt.Errorf("renew shard %d: %w", keys.ID, err)
	}
	return n == 1, nil
}

func release(ctx context.Context, rdb redis.Scripter, keys wire.Shard, process string) error {
	if err := releaseScript.Run(ctx, rdb, []string{keys.Owner()}, process).Err(); err != nil {
		return fmt.Errorf("release shard %d: %w", keys.ID, err)
	}
	return nil
}
