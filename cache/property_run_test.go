package cache_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/wire"
)

// propertyFence is what Trim asks for.
const propertyFence = "ours"

// A made is one dispatch of a sequence.
type made struct {
	name     string
	payload  []byte
	received int64
}

// A property is one sequence of TestProperty: a store, its Redis, the model, and
// what of the dispatches is made, built, handed over, executed and confirmed.
type property struct {
	*rand.Rand
	t          *testing.T
	rdb        *redis.Client
	trips      *trips
	prefix     string
	cfg        cache.Config
	cold, trim bool // the store forgets, and trims, after every commit

	source *cachemodel.Source
	made   []made
	now    int64

	store   *cache.Store
	model   *cachemodel.Model // after the last built dispatch
	number  uint64
	built   int
	growing *propertyBatch
	waiting []*propertyBatch // the first is the one that is being committed

	done   propertyBatch // the last that was executed
	before []memento     // what Redis may go back to
}

// A propertyBatch is what one commit writes, and the model after it.
type propertyBatch struct {
	number   uint64
	commands commands
	end      int // dispatches before it and in it
	model    *cachemodel.Model
}

// A memento is all that Redis held after a batch.
type memento struct {
	propertyBatch
	dumps map[string]string
}

func (p *property) pick(list ...int) int { return list[p.IntN(len(list))] }

func (p *property) idle() bool { return p.growing == nil && len(p.waiting) == 0 }

// prefetch takes one round trip at most. Now and then it fails at first: nothing
// has changed then.
func (p *property) prefetch(changes []*cache.Change) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	if p.IntN(10) == 0 {
		cancel()
		p.store.Prefetch(ctx, p.rdb, changes)
	}
	p.trips.n = 0
	if _, err := p.store.Prefetch(p.t.Context(), p.rdb, changes); err != nil {
		p.t.Fatal(err)
	}
	if p.trips.n > 1 {
		p.t.Errorf("%d round trips before dispatch %d, want 1 at most", p.trips.n, p.built)
	}
}

// hand gives the growing batch to the committer, which takes one while it commits
// another.
func (p *property) hand() {
	if p.growing != nil && len(p.waiting) < 2 {
		p.waiting = append(p.waiting, p.growing)
		p.growing = nil
	}
	if p.cold {
		p.settle()
	}
}

// execute commits the first batch that waits. Whether its reply is lost makes no
// difference to the store: it is told later.
func (p *property) execute() {
	if len(p.waiting) == 0 {
		return
	}
	b := p.waiting[0]
	p.waiting = p.waiting[1:]
	b.commands.exec(p.t, p.rdb)
	p.done = *b
	p.check()
}

func (p *property) confirm() {
	if p.done.number <= p.number {
		p.store.Confirm(p.done.number)
	}
}

// settle commits everything, as forward does around a READY. A cold store then
// forgets, a trimmed one is trimmed before.
func (p *property) settle() {
	for {
		for len(p.waiting) > 0 {
			p.execute()
		}
		if p.growing == nil {
			break
		}
		p.waiting, p.growing = append(p.waiting, p.growing), nil
	}
	p.confirm()
	if p.trim && p.done.model != nil {
		if err := p.store.Trim(p.t.Context(), p.rdb, propertyFence); err != nil {
			p.t.Fatal(err)
		}
		p.model.Trim(p.cfg.MessagesPerChannel)
		p.done.model = p.model.Clone()
		p.check()
	}
	if p.cold {
		p.load()
	}
}

// load empties the store's memory.
func (p *property) load() {
	p.store.Reset()
	if err := p.store.Load(p.t.Context(), p.rdb); err != nil {
		p.t.Fatal(err)
	}
	p.model.Takeover()
	p.number = 0
}

// takeover starts a new store on what Redis has. What was not executed is built
// anew.
func (p *property) takeover() {
	if p.now == 0 {
		p.now = time.Now().UnixMilli()
		p.done.model = p.model.Clone()
		if err := p.rdb.HSet(p.t.Context(), p.keys().Session(), wire.SessionFence, propertyFence).Err(); err != nil {
			p.t.Fatal(err)
		}
	}
	store, err := cache.NewStore(p.prefix, 0, 1, p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.store = store
	p.restart()
}

// restart builds from the last executed batch on.
func (p *property) restart() {
	p.growing, p.waiting = nil, nil
	p.model, p.built = p.done.model.Clone(), p.done.end
	p.load()
	p.done.number = 0
}

// remember notes what Redis holds, for a roll-back.
func (p *property) remember() {
	if p.done.number == 0 {
		return
	}
	m := memento{propertyBatch: p.done, dumps: make(map[string]string)}
	for _, key := range p.cacheKeys() {
		m.dumps[key] = p.rdb.Dump(p.t.Context(), key).Val()
	}
	p.before = append(p.before, m)
	p.before = p.before[max(0, len(p.before)-3):]
}

// rollBack makes Redis lose the last commits, as a failover may.
func (p *property) rollBack() {
	if len(p.before) == 0 {
		return
	}
	m := p.before[0]
	p.before = nil
	if keys := p.cacheKeys(); len(keys) > 0 {
		p.rdb.Del(p.t.Context(), keys...)
	}
	for key, dump := range m.dumps {
		life := time.Duration(0)
		if strings.Contains(key, ":cache:message:") || strings.Contains(key, ":cache:buckets:") {
			life = time.Hour
		}
		if err := p.rdb.Restore(p.t.Context(), key, life, dump).Err(); err != nil {
			p.t.Fatal(err)
		}
	}
	p.done = m.propertyBatch
	p.restart()
	p.check()
}

func (p *property) keys() wire.Shard { return wire.NewShard(p.prefix, 0, 1) }

func (p *property) cacheKeys() []string {
	keys, err := p.rdb.Keys(p.t.Context(), p.keys().Tag()+":cache:*").Result()
	if err != nil {
		p.t.Fatal(err)
	}
	return keys
}

// content reads all that the cache holds in Redis. It also checks what the model
// does not know of: that messages expire, and that an index has their buckets.
func (p *property) content() cachemodel.Content {
	p.t.Helper()
	content, err := cachemodel.Read(p.t.Context(), p.rdb, p.keys().Tag())
	if err != nil {
		p.t.Fatal(err)
	}
	pipe := p.rdb.Pipeline()
	var indexes []*redis.StringSliceCmd
	lives := make(map[string]*redis.DurationCmd)
	for _, key := range p.cacheKeys() {
		name := strings.TrimPrefix(key, p.keys().Tag()+":cache:")
		index := strings.HasPrefix(name, "buckets:")
		if index {
			indexes = append(indexes, pipe.ZRange(p.t.Context(), key, 0, -1))
		}
		if index || strings.HasPrefix(name, "message:") {
			lives[name] = pipe.PTTL(p.t.Context(), key)
		}
	}
	if _, err := pipe.Exec(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	indexed := make(map[string]bool)
	for _, cmd := range indexes {
		for _, bucket := range cmd.Val() {
			indexed[bucket] = true
		}
	}
	for name, life := range lives {
		if life.Val() <= 0 {
			p.t.Errorf("%s never expires", name)
		}
		if bucket, ok := strings.CutPrefix(name, "message:"); ok && !indexed[bucket] {
			p.t.Errorf("%s is in no index", name)
		}
	}
	return content
}
