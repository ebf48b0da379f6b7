package forward_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const lanes = 4

func config(prefix string) forward.Config {
	return forward.Config{
		Prefix:   prefix,
		Topology: forward.Topology{Application: "123", Shards: 1, Lanes: lanes},
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		OwnerTTL: time.Second,
		Cache:    cache.Config{},
	}
}

// dispatch makes one of a session named by its id.
func dispatch(session string, seq int64, eventType, payload string) gateway.Dispatch {
	return gateway.Dispatch{Type: eventType, Sequence: seq, Data: []byte(payload), Received: time.Now().UnixMilli(), SessionID: session}
}

func ready(session string, guilds ...string) gateway.Dispatch {
	list := make([]map[string]any, 0, len(guilds))
	for _, id := range guilds {
		list = append(list, map[string]any{"id": id, "unavailable": true})
	}
	payload, err := json.Marshal(map[string]any{
		"v": 10, "user": map[string]any{"id": "1", "username": "bot"}, "guilds": list,
		"session_id": session, "resume_gateway_url": "wss://resume.example", "shard": []int{0, 1},
	})
	if err != nil {
		panic(err)
	}
	return dispatch(session, 1, "READY", string(payload))
}

func message(session string, seq int64, guild int, content string) gateway.Dispatch {
	return dispatch(session, seq, "MESSAGE_CREATE", fmt.Sprintf(`{"id":"%d","channel_id":"77","guild_id":"%d","content":%q}`,
		(1_435_000_000_000_000_000+seq), 9000+guild, content))
}

// recorded returns the recorded session as dispatches of one session.
func recorded() []gateway.Dispatch {
	var all []gateway.Dispatch
	for _, e := range corpus.SessionEnvelopes() {
		all = append(all, gateway.Dispatch{Type: e.Type, Sequence: e.Seq(), Data: e.Payload, Received: time.Now().UnixMilli(), SessionID: "recorded"})
	}
	return all
}

// A stored entry with where it was.
type stored struct {
	wire.Entry
	ID     string
	Stream string
	fields []string // their names, in order
}

// entries returns what all streams of shard 0 hold, in the order of their ids
// within each stream.
func entries(t testing.TB, rdb redis.UniversalClient, prefix string) []stored {
	t.Helper()
	keys := wire.NewShard(prefix, 0, 1)
	var all []stored
	for lane := range lanes {
		for _, key := range []string{keys.Stream(lane), keys.Express(lane)} {
			reply, err := rdb.Do(context.Background(), "XRANGE", key, "-", "+").Slice()
			if err != nil {
				if strings.Contains(err.Error(), "WRONGTYPE") {
					continue
				}
				t.Fatal(err)
			}
			for _, raw := range reply {
				pair := raw.([]any)
				flat := pair[1].([]any)
				values := make(map[string]any)
				s := stored{ID: pair[0].(string), Stream: key}
				for i := 0; i < len(flat); i += 2 {
					s.fields = append(s.fields, flat[i].(string))
					values[flat[i].(string)] = flat[i+1]
				}
				if s.Entry, err = wire.Decode(values); err != nil {
					t.Fatalf("entry %s of %s: %v", s.ID, key, err)
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// sequences returns the sequences of entries, sorted.
func sequences(all []stored) []int64 {
	var seqs []int64
	for _, e := range all {
		seqs = append(seqs, e.Sequence)
	}
	slices.Sort(seqs)
	return seqs
}

// upTo returns 1 to n.
func upTo(n int64) []int64 {
	var seqs []int64
	for i := int64(1); i <= n; i++ {
		seqs = append(seqs, i)
	}
	return seqs
}

// record returns shard 0's session record.
func record(t testing.TB, rdb redis.UniversalClient, prefix string) map[string]string {
	t.Helper()
	fields, err := rdb.HGetAll(context.Background(), wire.NewShard(prefix, 0, 1).Session()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// eventually polls until done is true.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settled waits inside a source until seq is committed.
func settled(ctx context.Context, h *forward.Held, seq int64) error {
	for h.Settled() < seq {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// hold runs one tenure that takes dispatches and then ends cleanly.
func hold(t testing.TB, rdb redis.UniversalClient, cfg forward.Config, dispatches ...gateway.Dispatch) *forward.Held {
	t.Helper()
	var held *forward.Held
	err := forward.Hold(context.Background(), rdb, cfg, func(_ context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		held = h
		for _, d := range dispatches {
			if err := take(d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// A lockedBuffer takes log lines from several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
