package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookScript tells where a stream and its groups stand. Of entries it returns ids
// only.
//
//	KEYS  stream
//	→ {now (unix ms), entries, bytes (-1: not known), id of the first entry, then of
//	   each group: name, last id delivered, entries not read as Redis counts them
//	   (-1: it does not know), id of the first of those, entries pending, the lowest
//	   of their ids, the lowest that is still in the stream}
//
// An id that there is none of is empty.
var lookScript = redis.NewScript(`
local function first(from)
	local found = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)
	return found[1] and found[1][1] or ''
end
local time = redis.call('TIME')
local bytes = redis.pcall('MEMORY', 'USAGE', KEYS[1])
local head = first('-')
local seen = {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)),
	redis.call('XLEN', KEYS[1]), type(bytes) == 'number' and bytes or -1, head}
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then return seen end
for _, about in ipairs(groups) do
	local g = {}
	for i = 1, #about, 2 do g[about[i]] = about[i + 1] end
	local last = g['last-delivered-id']
	local pending = redis.call('XPENDING', KEYS[1], g.name)
	local kept = ''
	if pending[1] > 0 and head ~= '' then
		local lowest = redis.call('XPENDING', KEYS[1], g.name, head, '+', 1)
		kept = lowest[1] and lowest[1][1] or ''
	end
	for _, value in ipairs({g.name, last, g.lag or -1, first('(' .. last), pending[1], pending[2] or '', kept}) do
		seen[#seen + 1] = value
	end
end
return seen`)

// cutScript takes a stream's oldest entries, and counts for each group those it
// had not read, and those it had read and not acknowledged. Both counts are exact:
// entries go in steps that end where a group has read up to. What a step leaves of
// a node of the stream is counted by reading it, which is a node's entries at most.
//
//	KEYS  stream, notes of the groups
//	ARGV  entries that may stay, id below which entries go (empty: any), how many
//	      go at most
//	→ {entries that went, then name, unread, unacked of each group that has not had
//	   all of them}
//
// The notes can be written when Redis is out of memory too: it lets a script end
// that has begun to write, and XTRIM is allowed.
var cutScript = redis.NewScript(`
local stream, notes = KEYS[1], KEYS[2]
local limit = ARGV[2]

local function less(a, b)
	local ms1, seq1 = string.match(a, '^(%d+)-(%d+)$')
	local ms2, seq2 = string.match(b, '^(%d+)-(%d+)$')
	if #ms1 ~= #ms2 then return #ms1 < #ms2 end
	if ms1 ~= ms2 then return ms1 < ms2 end
	if #seq1 ~= #seq2 then return #seq1 < #seq2 end
	return seq1 < seq2
end
local function inc(digits) -- numbers in Lua are exact up to 2^53 only
	local head, nines = string.match(digits, '^(%d-)(9*)$')
	if head == '' then head = '0' end
	return string.sub(head, 1, -2) .. (tonumber(string.sub(head, -1)) + 1) .. string.rep('0', #nines)
end
local function after(id)
	local ms, seq = string.match(id, '^(%d+)-(%d+)$')
	if seq == '18446744073709551615' then return inc(ms) .. '-0' end
	return ms .. '-' .. inc(seq)
end
local function head()
	local found = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
	return found[1] and found[1][1] or ''
end

local length = redis.call('XLEN', stream)
local left = math.min(length - tonumber(ARGV[1]), tonumber(ARGV[3]))
local before = head()
if left <= 0 or (limit ~= '' and not less(before, limit)) then return {0} end

local groups = {}
local infos = redis.pcall('XINFO', 'GROUPS', stream)
if not infos.err then
	for _, about in ipairs(infos) do
		local g = {unread = 0, unacked = 0}
		for i = 1, #about, 2 do g[about[i]] = about[i + 1] end
		g.last = g['last-delivered-id']
		groups[#groups + 1] = g
	end
end
table.sort(groups, function(a, b) return less(a.last, b.last) end)

-- take takes entries below an id, as many as may go.
local function take(bound)
	if left <= 0 then return 0 end
	local n = redis.call('XTRIM', stream, 'MINID', '~', bound, 'LIMIT', left)
	left = left - n
	if left > 0 then -- what is left below the bound is a part of the first node
		local part = #redis.call('XRANGE', stream, '-', '(' .. bound, 'COUNT', left)
		if part > 0 then
			redis.call('XTRIM', stream, 'MAXLEN', '=', redis.call('XLEN', stream) - part)
			n = n + part
			left = left - part
		end
	end
	return n
end

local went = 0
local function count(n, behind) -- those behind the first groups have been read by the others
	went = went + n
	for i = 1, behind do groups[i].unread = groups[i].unread + n end
end
for i, g in ipairs(groups) do
	local bound = after(g.last)
	if limit ~= '' and less(limit, bound) then bound = limit end
	count(take(bound), i - 1)
end
if limit ~= '' then
	count(take(limit), #groups)
elseif left > 0 then
	redis.call('XTRIM', stream, 'MAXLEN', '=', redis.call('XLEN', stream) - left)
	count(left, #groups)
end
if went == 0 then return {0} end

local now = head()
for _, g in ipairs(groups) do
	if g.pending > 0 then
		g.unacked = #redis.call('XPENDING', stream, g.name, before, now == '' and '+' or '(' .. now, went)
	end
end
local answer = {went}
local time = redis.call('TIME')
for _, g in ipairs(groups) do
	if g.unread + g.unacked > 0 then
		redis.pcall('HINCRBY', notes, 'unread:' .. g.name, g.unread)
		redis.pcall('HINCRBY', notes, 'unacked:' .. g.name, g.unacked)
		redis.pcall('HSET', notes, 'trimmed:' .. g.name, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
		for _, value in ipairs({g.name, g.unread, g.unacked}) do answer[#answer + 1] = value end
	end
end
return answer`)

// A look is what lookScript tells of a stream.
type look struct {
	now     time.Time // Redis'
	entries int64
	bytes   int64 // 0: not known
	groups  []groupLook
}

// A groupLook is where a group stands in a stream.
type groupLook struct {
	name    string
	last    streamID // the last id it was delivered
	lag     int64    // entries it has not read; -1: not known
	next    streamID // the first of them; zero: there is none
	pending int64
	oldest  streamID // the lowest pending id; zero: nothing is pending
	kept    streamID // the lowest that is still in the stream; zero: none is
}

// floor returns the id below which the group needs nothing any more.
func (g *groupLook) floor() streamID {
	switch {
	case g.kept != streamID{}:
		return g.kept // what it has read comes before what it has not
	case g.next != streamID{}:
		return g.next
	}
	return g.last.following()
}

func parseLook(reply []any) (look, error) {
	const perStream, perGroup = 4, 7
	if len(reply) < perStream || (len(reply)-perStream)%perGroup != 0 {
		return look{}, fmt.Errorf("%d values of a look: %v", len(reply), reply)
	}
	v := values{rest: reply}
	l := look{now: time.UnixMilli(v.number()), entries: v.number(), bytes: max(0, v.number())}
	head := v.id()
	for len(v.rest) > 0 && v.err == nil {
		g := groupLook{name: v.text(), last: v.id(), lag: v.number(), next: v.id(), pending: v.number(), oldest: v.id(), kept: v.id()}
		switch {
		case g.next == streamID{}:
			g.lag = 0
		case g.next == head: // all of them, whatever Redis counts
			g.lag = l.entries
		case g.lag == 0: // it has lost count
			g.lag = -1
		case g.lag > 0: // Redis counts what was trimmed unread for ever
			g.lag = min(g.lag, l.entries)
		}
		l.groups = append(l.groups, g)
	}
	return l, v.err
}

// A cut is what cutScript has taken of a stream.
type cut struct {
	went   int64
	losses map[string]missed
}

// A missed is what was trimmed of a stream that a group had not had.
type missed struct {
	unread  int64 // never read
	unacked int64 // read, not acknowledged
}

func (l missed) plus(other missed) missed {
	return missed{l.unread + other.unread, l.unacked + other.unacked}
}

func parseCut(reply []any) (cut, error) {
	const perStream, perGroup = 1, 3
	if len(reply) < perStream || (len(reply)-perStream)%perGroup != 0 {
		return cut{}, fmt.Errorf("%d values of a cut: %v", len(reply), reply)
	}
	v := values{rest: reply}
	c := cut{went: v.number()}
	for len(v.rest) > 0 && v.err == nil {
		if c.losses == nil {
			c.losses = make(map[string]missed)
		}
		c.losses[v.text()] = missed{unread: v.number(), unacked: v.number()}
	}
	return c, v.err
}

// values are what a script has answered, taken from the front.
type values struct {
	rest []any
	err  error
}

func (v *values) next() any {
	value := v.rest[0]
	v.rest = v.rest[1:]
	return value
}

func (v *values) number() int64 {
	switch n := v.next().(type) {
	case int64:
		return n
	case string:
		parsed, err := strconv.ParseInt(n, 10, 64)
		v.err = errors.Join(v.err, err)
		return parsed
	default:
		v.err = errors.Join(v.err, fmt.Errorf("%T %v, want a number", n, n))
		return 0
	}
}

func (v *values) text() string {
	text, ok := v.next().(string)
	if !ok {
		v.err = errors.Join(v.err, errors.New("want a text"))
	}
	return text
}

func (v *values) id() streamID {
	text := v.text()
	if text == "" {
		return streamID{}
	}
	id, err := parseStreamID(text)
	v.err = errors.Join(v.err, err)
	return id
}

// scripts runs a script for each of the streams in one round trip. A stream's
// error is among the errors returned; each is called for the others.
func (t *trimmer) scripts(ctx context.Context, script *redis.Script, streams []int, call func(i int) (keys []string, args []any), each func(i int, reply []any) error) error {
	pipe := t.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(streams))
	for k, i := range streams {
		keys, args := call(i)
		cmds[k] = script.Eval(ctx, pipe, keys, args...)
	}
	if len(cmds) == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	if err != nil && !isReply(err) {
		return err
	}
	var errs []error
	for k, i := range streams {
		reply, err := cmds[k].Slice()
		if err == nil {
			err = each(i, reply)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.streams[i], err))
		}
	}
	return errors.Join(errs...)
}

// A streamID is a stream's id, in the order of Redis.
type streamID struct{ ms, seq uint64 }

func (id streamID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

// following returns the lowest id above id.
func (id streamID) following() streamID {
	if id.seq == math.MaxUint64 {
		return streamID{ms: id.ms + 1}
	}
	return streamID{ms: id.ms, seq: id.seq + 1}
}

func least(a, b streamID) streamID {
	if a.ms < b.ms || (a.ms == b.ms && a.seq < b.seq) {
		return a
	}
	return b
}

func parseStreamID(text string) (streamID, error) {
	ms, seq, _ := strings.Cut(text, "-")
	var (
		id  streamID
		err error
	)
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return streamID{}, fmt.Errorf("stream id %q: %w", text, err)
	}
	if seq != "" {
		if id.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
			return streamID{}, fmt.Errorf("stream id %q: %w", text, err)
		}
	}
	return id, nil
}
