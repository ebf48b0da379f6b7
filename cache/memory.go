package cache

import (
	"strconv"
	"time"
)

// What an entry, a collection and a scope cost beyond their values, in bytes:
// the structs, their map slots and their ids. Estimates, on the high side.
const (
	entryBytes      = 200
	collectionBytes = 400
	scopeBytes      = 400
)

// memory is the bounded store of raw objects before Redis: collections of
// entries, each collection one Redis hash, grouped by the guild they belong to.
// One list over all entries orders them by use.
type memory struct {
	limit, used         int64
	building, confirmed uint64
	scopes              map[string]*scope
	newest, oldest      *entry
	metrics             *metrics
	held                [numKinds]held
}

// held is what memory holds of a kind.
type held struct{ entries, bytes int64 }

// account notes that entries of a kind came (or, negative, went), and bytes of their
// values and of what they cost beyond them.
func (m *memory) account(kind int, entries, bytes int64) {
	m.used += bytes
	m.held[kind].entries += entries
	m.held[kind].bytes += bytes
}

// A scope holds the collections of one guild (of one channel, for messages
// outside guilds; of the shard, under the empty id).
type scope struct {
	id       string
	kinds    [numKinds]*collection
	messages map[bucket]*collection
	size     int // collections
}

// A bucket is a slice of a channel's messages by time.
type bucket struct {
	channel string
	number  int64
}

// member returns the bucket as the index in Redis has it.
func (b bucket) member() string { return b.channel + ":" + strconv.FormatInt(b.number, 10) }

// A collection is what memory holds of one Redis hash.
type collection struct {
	key     string
	in      *scope
	kind    int
	bucket  bucket // messages only
	entries map[string]*entry
	whole   *entry // if set, what is not in entries does not exist

	kept    uint64 // messages: the batch that last gave the hash its expiry
	indexed int64  // messages: unix ms up to which the bucket index vouches for the hash
}

// An entry is one object, or the knowledge that there is none (value nil).
type entry struct {
	newer, older *entry
	in           *collection
	id           string
	value        []byte
	commit       uint64 // the batch that last wrote or read it: pinned until that is confirmed
	expires      int64  // unix ms; 0: never
}

func newMemory(limit int64, m *metrics) *memory {
	return &memory{limit: limit, scopes: make(map[string]*scope), metrics: m}
}

func (m *memory) scope(id []byte) *scope {
	s := m.scopes[string(id)]
	if s == nil {
		s = &scope{id: string(id)}
		m.scopes[s.id] = s
		m.used += scopeBytes
	}
	return s
}

func (m *memory) newCollection(s *scope, kind int, b bucket, key string) *collection {
	c := &collection{key: key, in: s, kind: kind, bucket: b, entries: make(map[string]*entry)}
	s.size++
	m.used += collectionBytes
	return c
}

func (m *memory) pinned(e *entry) bool { return e.commit > m.confirmed }

// lookup returns what is known of id: its value (nil: it does not exist), and
// whether anything is known at all.
func (m *memory) lookup(c *collection, id []byte, now int64) (value []byte, known bool) {
	e := c.entries[string(id)]
	if e == nil {
		return nil, c.whole != nil
	}
	if e.expires != 0 && e.expires <= now && !m.pinned(e) {
		return nil, false
	}
	m.touch(e)
	return e.value, true
}

// set writes value (nil: deletes) as part of the batch being built.
func (m *memory) set(c *collection, id []byte, value []byte, expires int64) *entry {
	e := c.entries[string(id)]
	if e == nil {
		e = &entry{in: c, id: string(id)}
		c.entries[e.id] = e
		m.account(c.kind, 1, entryBytes+int64(len(value)))
	} else {
		m.unlink(e)
		m.account(c.kind, 0, int64(len(value)-len(e.value)))
	}
	e.value, e.expires, e.commit = value, expires, m.building
	m.link(e)
	return e
}

// learn takes a value read from Redis, unless memory knows better, and pins it
// for the batch being built.
func (m *memory) learn(c *collection, id []byte, value []byte, expires, now int64) {
	if e := c.entries[string(id)]; e != nil && (e.expires == 0 || e.expires > now || m.pinned(e)) {
		e.commit = max(e.commit, m.building)
		return
	}
	m.set(c, id, value, expires)
}

// clear drops all entries of c and notes that its hash is empty, as part of the
// batch being built.
func (m *memory) clear(c *collection) {
	for _, e := range c.entries {
		m.unlink(e)
		m.account(c.kind, -1, -entryBytes-int64(len(e.value)))
	}
	clear(c.entries)
	m.setWhole(c)
}

// setWhole notes that memory has all of c. Its entries are pinned along.
func (m *memory) setWhole(c *collection) {
	for _, e := range c.entries {
		e.commit = max(e.commit, m.building)
	}
	if c.whole == nil {
		c.whole = &entry{in: c}
		m.used += entryBytes
	} else {
		m.unlink(c.whole)
	}
	c.whole.commit = m.building
	m.link(c.whole)
}

// evict drops the least recently used entries that are over the limit, as far
// as they are not pinned.
func (m *memory) evict() {
	for m.used > m.limit && m.oldest != nil && !m.pinned(m.oldest) {
		e := m.oldest
		c := e.in
		m.unlink(e)
		m.metrics.evicted.Inc()
		if e == c.whole {
			m.used -= entryBytes
			c.whole = nil
		} else {
			m.account(c.kind, -1, -entryBytes-int64(len(e.value)))
			delete(c.entries, e.id)
			if c.whole != nil { // what is missing is now unknown, not absent
				m.unlink(c.whole)
				m.used -= entryBytes
				c.whole = nil
			}
		}
		m.release(c)
	}
	m.metrics.holds(m.used, &m.held)
}

// release drops a collection that holds no entry, and its scope with the last one.
func (m *memory) release(c *collection) {
	if len(c.entries) > 0 || c.whole != nil {
		return
	}
	s := c.in
	if c.bucket.channel != "" {
		if s.messages[c.bucket] != c {
			return
		}
		delete(s.messages, c.bucket)
	} else {
		if s.kinds[c.kind] != c {
			return
		}
		s.kinds[c.kind] = nil
	}
	m.used -= collectionBytes
	s.size--
	m.releaseScope(s)
}

func (m *memory) releaseScope(s *scope) {
	if s.size == 0 && m.scopes[s.id] == s {
		delete(m.scopes, s.id)
		m.used -= scopeBytes
	}
}

func (m *memory) touch(e *entry) {
	if m.newest != e {
		m.unlink(e)
		m.link(e)
	}
}

func (m *memory) link(e *entry) {
	e.newer, e.older = nil, m.newest
	if m.newest != nil {
		m.newest.newer = e
	} else {
		m.oldest = e
	}
	m.newest = e
}

func (m *memory) unlink(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		m.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		m.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}

// BucketWidth is the time that one message bucket covers. It is part of the
// layout and never changes: a bucket's key is computed from a message's id.
const BucketWidth = 15 * time.Minute

// bucketOf returns the bucket number of a message id; 0 for an id that is no
// snowflake.
//
// Source: https://discord.com/developers/docs/reference#snowflakes
func bucketOf(id []byte) int64 {
	n, err := strconv.ParseUint(string(id), 10, 64)
	if err != nil {
		return 0
	}
	return int64(n>>22) / BucketWidth.Milliseconds()
}
