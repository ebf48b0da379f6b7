// Package cache keeps what Discord has said of each entity, as the raw JSON it
// came in, and tells what was known of one before a dispatch.
//
// A [Store] is the gateway's side: it belongs to one shard and to the one
// goroutine that forwards it. It holds recently used objects in memory, bounded
// in bytes, before Redis. It never writes: [Store.Apply] hands out the Redis
// commands of a dispatch, and the caller commits them together with the
// dispatch's entry, so that cache and stream move in one step. What a commit
// that is not yet confirmed wrote or deleted stays pinned in memory, because
// Redis may still answer with what was before it.
//
// # Layout in Redis
//
// All keys carry the shard's hash tag, written T here.
//
//	T:cache:guild, T:cache:emojis, T:cache:stickers   hash, field: guild id
//	T:cache:user                                      hash, field: @me
//	T:cache:entitlement, T:cache:subscription         hash, field: the entity's id
//	T:cache:thread_member:<thread id>                 hash, field: user id
//	T:cache:<kind>:<guild id>                         hash, field: the entity's id (a user's, an invite's code)
//	T:cache:message:<channel id>:<bucket>             hash, field: message id
//	T:cache:buckets:<guild id, else channel id>       sorted set of <channel id>:<bucket>, score: when it expires at the latest (unix ms)
//	T:cache:unavailable                               set of ids of guilds that READY announced, or that are in an outage
//
// A bucket is the number of [BucketWidth]s from Discord's epoch to the message's
// creation, as its id tells it. Values are JSON objects (emojis and stickers:
// arrays) as Discord sends them. One that begins with a space is known only in
// part: nothing was cached when a dispatch brought a part of it. There is one hash
// for each parent, so that a parent and all its children go with one UNLINK and
// nothing is ever found by a pattern.
//
// What other dispatches than an entity's own say of it lies beside it, in the same
// hash, in the field <id>:<name>: an id has no colon.
//
//	<message id>:reactions                  JSON array of reactions as in a message, once one was added or removed
//	<message id>:poll                       {"answer_counts":[…]}, once a vote was cast or taken back
//	<guild id>:member_count                 decimal, once a member came or went
//	<channel or thread id>:voice            {"status":…,"voice_start_time":…}
//	<thread id>:member_count                decimal
//	<user id>:left                          the voice state of a member who has left the guild, for a minute
package cache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// Defaults of Config.
const (
	DefaultMemoryBytes        = 256 << 20
	DefaultMessageAge         = time.Hour
	DefaultMessagesPerChannel = 200
)

// Config bounds a Store. The zero value works.
type Config struct {
	// Off names kinds that are not cached (message, presence, ...): they have no
	// previous state. Without thread there is no thread_member either. Default: none.
	Off []string
	// MemoryBytes bounds the memory, values and bookkeeping; 0:
	// DefaultMemoryBytes. What is pinned may exceed it for the length of a commit.
	MemoryBytes int64
	// MessageAge is how long after the last write into a message's bucket the
	// bucket is forgotten; 0: DefaultMessageAge.
	MessageAge time.Duration
	// MessagesPerChannel bounds a channel's cached messages, the newest stay; 0:
	// DefaultMessagesPerChannel. It is enforced every few seconds, see Trim.
	MessagesPerChannel int
	// Metrics receives the store's counters; nil: none.
	Metrics prometheus.Registerer
}

func (c Config) validate() (Config, error) {
	var errs []error
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.MessageAge == 0 {
		c.MessageAge = DefaultMessageAge
	}
	if c.MessagesPerChannel == 0 {
		c.MessagesPerChannel = DefaultMessagesPerChannel
	}
	if c.MemoryBytes < 0 {
		errs = append(errs, fmt.Errorf("cache: MemoryBytes is %d, want 0 or more", c.MemoryBytes))
	}
	if c.MessageAge < time.Second {
		errs = append(errs, fmt.Errorf("cache: MessageAge is %v, want at least 1s", c.MessageAge))
	}
	if c.MessagesPerChannel < 0 {
		errs = append(errs, fmt.Errorf("cache: MessagesPerChannel is %d, want 0 or more", c.MessagesPerChannel))
	}
	for _, name := range c.Off {
		if kindIndex(dispatch.Kind(name)) < 0 {
			errs = append(errs, fmt.Errorf("cache: Off names %q, want some of %s", name, strings.Join(KindNames(), ", ")))
		}
	}
	return c, errors.Join(errs...)
}

// A Writer takes the Redis commands of a dispatch, in order. What it is given
// does not change until the batch is confirmed.
type Writer interface {
	// Command begins a command with n arguments, its name not counted.
	Command(name string, n int)
	// Text and Bytes give the next argument.
	Text(arg string)
	Bytes(arg []byte)
}

// ErrNotRead is returned by Apply for a change whose entities Prefetch has not
// looked up. It is a fault of the caller; nothing was changed.
var ErrNotRead = errors.New("cache: the previous state was not read before it was asked for")

// A Change is one dispatch as the cache sees it. Set makes it; Prefetch and Apply
// fill in the rest.
type Change struct {
	State   []byte // what was known before, empty if nothing; read only
	Partial bool   // State is not all of it
	Sync    bool   // a GUILD_CREATE that READY announced or that belongs to an outage: not a join

	event    *dispatch.Type // nil: unknown
	payload  []byte
	fields   dispatch.Fields
	received int64
	buckets  []string // members of the scope's bucket index in Redis, if asked for
	threads  []string // fields of the guild's threads in Redis, if asked for
}

// Set makes c the change that a dispatch is: its type, its payload (kept by the
// store, never changed) and when it was received (unix ms). The error says where
// a payload breaks off; one that is no JSON object changes nothing.
func (c *Change) Set(eventType string, payload []byte, received int64) error {
	*c = Change{event: dispatch.Lookup(eventType), payload: payload, received: received}
	return c.fields.Scan(payload)
}

// Object reports whether the payload is a JSON object.
func (c *Change) Object() bool { return c.fields.Object }

// Key returns the identifier the dispatch is ordered by (its guild's, else its
// channel's, else its user's), nil if it has none of them.
func (c *Change) Key() []byte {
	key, _ := c.event.Key(&c.fields)
	return key
}

// Express reports whether the dispatch goes to its lane's express stream.
func (c *Change) Express() bool { return c.event != nil && c.event.Express }

// A Store is the cache of one shard. It is not safe for concurrent use, except
// for Trim.
type Store struct {
	keys    wire.Shard
	cfg     Config
	off     [numKinds]bool
	mem     *memory
	metrics *metrics

	latest int64 // unix ms: the newest Received seen; what expiries are counted from

	unavailable map[string]struct{} // guild ids; what T:cache:unavailable holds
	self        []byte              // the bot's id, nil: not known
	age         string              // cfg.MessageAge in ms

	mu    sync.Mutex // guards trims
	trims trims

	wants   wants
	scratch []byte // of besideID
}

// NewStore returns an empty store of one of shards shards, for keys under prefix.
// Load must succeed before it is used.
func NewStore(prefix string, shard, shards int, cfg Config) (*Store, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	keys := wire.NewShard(prefix, shard, shards)
	s := &Store{keys: keys, cfg: cfg, metrics: newMetrics(cfg.Metrics, keys), age: itoa(cfg.MessageAge.Milliseconds())}
	for _, name := range cfg.Off {
		s.off[kindIndex(dispatch.Kind(name))] = true
	}
	if s.off[kindIndex(dispatch.Thread)] {
		s.off[kindIndex(dispatch.ThreadMember)] = true // they are kept of cached threads only
	}
	s.Reset()
	return s, nil
}

// Reset forgets everything, pinned or not: after a takeover, and when Redis has
// gone back. Load must succeed before the store is used again.
func (s *Store) Reset() {
	s.mem = newMemory(s.cfg.MemoryBytes, s.metrics)
	s.unavailable = make(map[string]struct{})
	s.self = nil
	s.takeTrims()
}

// Begin says that the changes applied from now on belong to batch number n.
// Numbers rise; what a batch wrote or read is pinned until Confirm.
func (s *Store) Begin(n uint64) { s.mem.building = n }

// Confirm says that all batches up to n are committed.
func (s *Store) Confirm(n uint64) {
	if n > s.mem.confirmed {
		s.mem.confirmed = n
		s.mem.evict()
	}
}

// Bytes reports the memory in use, values and bookkeeping.
func (s *Store) Bytes() int64 { return s.mem.used }

const numKinds = len(dispatch.Kinds)

func kindIndex(kind dispatch.Kind) int { return slices.Index(dispatch.Kinds[:], kind) }

// KindNames lists the kinds that can be switched off.
func KindNames() []string {
	names := make([]string, numKinds)
	for i, kind := range dispatch.Kinds {
		names[i] = string(kind)
	}
	return names
}
