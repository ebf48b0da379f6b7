package cache_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/redistest"
)

var (
	propertySeeds = flag.Int("seeds", 0, "sequences of TestProperty; 0: a few")
	propertySeed  = flag.Uint64("seed", 1, "of the first sequence of TestProperty")
	propertySteps = flag.Int("steps", 600, "dispatches in a sequence of TestProperty")
)

// TestProperty drives a store with random dispatches as forward does, through
// lost replies, takeovers and roll-backs, and holds it against the model: the
// state of each dispatch, and all that Redis holds after each commit.
func TestProperty(t *testing.T) {
	t.Parallel()
	n := *propertySeeds
	if n == 0 {
		n = 12
	}
	server := redistest.Start(t)
	for i := range n {
		seed := *propertySeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again: go test ./cache -run TestProperty -seeds 1 -seed %d -steps %d", seed, *propertySteps)
				}
			}()
			newProperty(t, server.Client(t), seed).run(*propertySteps)
		})
	}
}

// newProperty sets up a store of a random configuration, and the model of it.
func newProperty(t *testing.T, rdb *redis.Client, seed uint64) *property {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	cfg := cache.Config{MessagesPerChannel: 1 << 20}
	how := []string{"warm", "little memory", "little memory", "little memory", "no memory to speak of", "cold", "trimmed"}[random.IntN(7)]
	switch how {
	case "little memory":
		cfg.MemoryBytes = 5_000 + random.Int64N(80_000)
	case "no memory to speak of":
		cfg.MemoryBytes = 1
	case "trimmed":
		cfg.MessagesPerChannel = 1 + random.IntN(3)
	}
	if random.IntN(3) == 0 {
		// Without the own user, what a batch knows of the bot depends on where it begins.
		names := slices.DeleteFunc(cache.KindNames(), func(name string) bool { return name == "user" })
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		cfg.Off = names[:1+random.IntN(3)]
	}
	size := cachemodel.Size{Guilds: 1 + random.IntN(4), Channels: 2 + random.IntN(2), Users: 3 + random.IntN(4), Messages: 12}
	if how == "trimmed" {
		size = cachemodel.Size{Guilds: 1, Channels: 2, Users: 3, Messages: 4} // in one bucket: a new message is never in an older one
	}
	if random.IntN(2) == 0 {
		size.Odd = 30
	}
	t.Logf("%s, %d bytes, off: %v, %+v", how, cfg.MemoryBytes, cfg.Off, size)
	p := &property{
		t: t, Rand: random, rdb: rdb, trips: new(trips), cfg: cfg, prefix: redistest.Prefix(t),
		cold: how == "cold" || how == "trimmed", trim: how == "trimmed",
		source: cachemodel.NewSource(seed, size), model: cachemodel.New(cfg.Off...),
	}
	rdb.AddHook(p.trips)
	p.takeover()
	return p
}

// run goes on until so many dispatches are made, built and committed.
func (p *property) run(steps int) {
	for !p.t.Failed() {
		switch p.IntN(9) {
		case 0, 1, 2:
			if len(p.made) < steps || p.built < len(p.made) {
				p.build(1 + p.IntN(p.pick(1, 2, 8, 50)))
			} else if p.idle() {
				return
			}
		case 3, 4:
			p.hand()
		case 5, 6:
			p.execute()
			if p.IntN(2) == 0 { // else the reply is lost, or late
				p.confirm()
			}
		case 7:
			p.confirm()
		default:
			switch p.IntN(20) {
			case 0:
				p.takeover()
			case 1:
				p.rollBack()
			case 2, 3:
				p.remember()
			}
		}
	}
}

// dispatch returns the i-th dispatch, made when it is first asked for.
func (p *property) dispatch(i int) made {
	if i == len(p.made) {
		name, payload := p.source.Next()
		p.now += p.Int64N(1500)
		p.made = append(p.made, made{name, payload, p.now})
	}
	return p.made[i]
}

// build applies the next n dispatches to the growing batch. A READY has batches of
// its own.
func (p *property) build(n int) {
	if p.dispatch(p.built).name == "READY" {
		p.settle()
		p.apply(p.made[p.built : p.built+1])
		p.settle()
		return
	}
	end := p.built + 1
	for end < p.built+n && p.dispatch(end).name != "READY" {
		end++
	}
	p.apply(p.made[p.built:end])
}

func (p *property) apply(dispatches []made) {
	if p.growing == nil {
		p.number++
		p.growing = &propertyBatch{number: p.number}
		p.store.Begin(p.number)
	}
	changes := make([]*cache.Change, len(dispatches))
	for i, d := range dispatches {
		changes[i] = new(cache.Change)
		changes[i].Set(d.name, slices.Clone(d.payload), d.received)
	}
	p.prefetch(changes)
	for i, c := range changes {
		d := dispatches[i]
		if err := p.store.Apply(c, &p.growing.commands); err != nil {
			p.t.Fatalf("Apply(%s %s), dispatch %d: %v", d.name, d.payload, p.built, err)
		}
		want := p.model.Apply(d.name, d.payload)
		if got := changeText(c); got != modelText(want) {
			p.t.Fatalf("dispatch %d, %s %s:\nstate %s\n want %s", p.built, d.name, d.payload, got, modelText(want))
		}
		p.built++
	}
	p.growing.end, p.growing.model = p.built, p.model.Clone()
}

// modelText describes a state of the model's.
func modelText(s cachemodel.State) string {
	return describe(string(s.Previous), s.Partial, s.Sync)
}

// changeText describes what a change says was before it.
func changeText(c *cache.Change) string {
	if strings.HasPrefix(string(c.State), " ") {
		return "with a space: " + string(c.State)
	}
	return describe(string(c.State), c.Partial, c.Sync)
}

func describe(state string, partial, sync bool) string {
	text := cachemodel.Canonical(state)
	if partial {
		text = "in part " + text
	}
	if sync {
		text = "sync " + text
	}
	return text
}

// check holds what Redis has against the model after the last executed batch.
func (p *property) check() {
	p.t.Helper()
	if diff := cmp.Diff(p.done.model.Content().Normal(), p.content().Normal()); diff != "" {
		if p.done.end == 0 {
			p.t.Fatalf("the cache at the beginning (-want +got):\n%s", diff)
		}
		last := p.made[p.done.end-1]
		p.t.Fatalf("the cache after batch %d, which ends with dispatch %d, %s %.300s (-want +got):\n%s",
			p.done.number, p.done.end-1, last.name, last.payload, diff)
	}
}
