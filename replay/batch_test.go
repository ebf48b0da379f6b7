package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// batches notes the batches it gets, as sequence#attempt.
type batches struct {
	mu  sync.Mutex
	got [][]string
	n   int
}

func (b *batches) note(ds []*listener.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []string
	for _, d := range ds {
		batch = append(batch, fmt.Sprintf("%d#%d", d.Sequence, d.Attempt))
	}
	b.got = append(b.got, batch)
	b.n += len(ds)
}

func (b *batches) all() ([][]string, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got), b.n
}

func TestBatches(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 2, 2)
	const total = 95
	var guilds []string
	var entries []wire.Entry
	for i := range total {
		guilds = append(guilds, d.guild(i%2, i%20))
		entries = append(entries, d.entry("MESSAGE_CREATE", guilds[i]))
	}
	d.put(false, guilds, entries)
	var b batches
	r := listener.New()
	r.Add(listener.HandleBatch("batch", "#", listener.BatchOptions{MaxSize: 20, MaxWait: 200 * time.Millisecond},
		func(_ context.Context, ds []*listener.Delivery) error {
			b.note(ds)
			return nil
		}))
	began := time.Now()
	d.run(r, quick)
	waitFor(t, "all acked", func() bool { _, n := b.all(); return n >= total && d.pending("workers") == 0 })
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("took %v: the last batch did not wait", took)
	}
	got, n := b.all()
	if n != total || len(got) != 5 {
		t.Errorf("%d events in %d batches, want %d in 5", n, len(got), total)
	}
}

func TestBatchErrorsAreEachEntrys(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	var b batches
	r := listener.New()
	r.Add(listener.HandleBatch("batch", "#", listener.BatchOptions{MaxSize: 4, MaxWait: 20 * time.Millisecond},
		func(_ context.Context, ds []*listener.Delivery) error {
			b.note(ds)
			failed := listener.BatchError{}
			for i, d := range ds {
				switch {
				case d.Sequence == 2 && d.Attempt == 1:
					failed[i] = errors.New("once")
				case d.Sequence == 3:
					failed[i] = listener.Discard(errors.New("no"))
				case d.Sequence == 5 && d.Attempt == 1:
					panic("all of them")
				}
			}
			return failed
		}))
	var guilds []string
	var entries []wire.Entry
	for range 4 {
		guilds = append(guilds, guild)
		entries = append(entries, d.entry("MESSAGE_CREATE", guild))
	}
	d.put(false, guilds, entries)
	d.run(r, quick)
	letter := d.letters("workers", 1)[0]
	if letter["sequence"] != "3" || letter["error"] != "batch: no" {
		t.Errorf("letter of %v: %v, want 3: batch: no", letter["sequence"], letter["error"])
	}
	d.post(guild)
	d.post(guild)
	waitFor(t, "the others", func() bool {
		got, _ := b.all()
		return strings.Contains(fmt.Sprint(got), "5#2") && d.pending("workers") == 0
	})
	got, _ := b.all()
	if first := fmt.Sprint(got[0]); first != "[1#1 2#1 3#1 4#1]" {
		t.Errorf("first batch = %s", first)
	}
	if second := fmt.Sprint(got[1]); second != "[2#2]" {
		t.Errorf("second batch = %s, want only what failed", second)
	}
}

// A batch does not wait for what can't come: places for more are short.
func TestBatchesDoNotWaitForPlaces(t *testing.T) {
	t.Parallel()
	for name, guilds := range map[string]int{"of a key": 1, "in hand": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			var b batches
			r := listener.New()
			r.Add(listener.HandleBatch("batch", "#", listener.BatchOptions{MaxSize: 1000, MaxWait: time.Hour},
				func(_ context.Context, ds []*listener.Delivery) error {
					b.note(ds)
					return nil
				}))
			config := quick
			config.MaxInHand = 50
			for i := range 200 {
				d.post(d.guild(0, i%guilds))
			}
			d.run(r, config)
			waitFor(t, "most of them", func() bool { _, n := b.all(); return n >= 150 })
		})
	}
}

func TestABatchThatNeverReturnsIsAbandoned(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	hold := make(chan struct{})
	defer close(hold)
	r := listener.New()
	r.Add(listener.HandleBatch("batch", "#", listener.BatchOptions{MaxSize: 2, MaxWait: time.Millisecond},
		func(context.Context, []*listener.Delivery) error {
			<-hold
			return nil
		}).With(listener.Options{Timeout: 10 * time.Millisecond}))
	d.put(false, []string{d.guild(0, 1), d.guild(0, 1)}, []wire.Entry{d.entry("MESSAGE_CREATE", d.guild(0, 1)), d.entry("MESSAGE_CREATE", d.guild(0, 1))})
	d.run(r, quick)
	for _, letter := range d.letters("workers", 2) {
		if !strings.Contains(letter["error"].(string), "abandoned") {
			t.Errorf("error = %q, want abandoned", letter["error"])
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	handlers := listener.New()
	handlers.AddHandler(func(*discordgo.Session, *discordgo.MessageCreate) {})
	if _, err := replay.New(rdb, handlers, replay.Config{}); !errors.Is(err, listener.ErrNoSession) {
		t.Errorf("handlers without a session: %v, want ErrNoSession", err)
	}
	for _, test := range []struct {
		pattern string
		events  []string
		want    string // in the error; empty: none
	}{
		{"message.*", nil, ""},
		{"message.*", []string{"guild.>", "MESSAGE_DELETE"}, ""},
		{"#", []string{"READY"}, ""},
		{"orders.created", []string{"READY"}, ""},
		{"message.*", []string{"guild.>", "READY"}, "listener l would run nowhere: it is for message.*, and forward.events has only guild.>, READY"},
		{"MESSAGE_CREATE", []string{"message.update"}, "it is for MESSAGE_CREATE"},
		{"message.*", []string{"a..b"}, "Config.Events"},
	} {
		_, err := replay.New(rdb, registry("l", test.pattern, nothing), replay.Config{Events: test.events})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s of %v: %v, want %q", test.pattern, test.events, err, test.want)
		}
	}
}
