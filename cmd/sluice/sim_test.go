package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/corpus"
)

const token = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.sim.ulated"

// A counter is a shard's handler that keeps what it gets.
type counter struct {
	mu    sync.Mutex
	types []string
}

func (c *counter) Check(context.Context) error          { return nil }
func (c *counter) SessionEnded(context.Context, string) {}
func (c *counter) Sequence(received int64) int64        { return received }
func (c *counter) Dispatch(_ context.Context, d gateway.Dispatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types = append(c.types, d.Type)
	return nil
}

func (c *counter) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.types...)
}

// connect runs shards against a simulator until the test ends.
func connect(t *testing.T, api string, compress string) []*counter {
	t.Helper()
	info, err := gateway.Bot(t.Context(), nil, api, token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	counters := make([]*counter, info.Shards)
	for i := range counters {
		counters[i] = &counter{}
		shard, err := gateway.New(gateway.Config{
			Token: token, URL: info.URL, Shard: i, Shards: info.Shards, Compress: compress, MaxConcurrency: info.MaxConcurrency,
			Pacer: noPacer{}, Logger: slog.New(slog.DiscardHandler),
		}, counters[i])
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() { shard.Run(ctx, gateway.Session{}) })
	}
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return counters
}

type noPacer struct{}

func (noPacer) Wait(context.Context, int) error { return nil }

// apiURL returns the address that the first line of the output names.
func apiURL(t *testing.T, r *running) string {
	t.Helper()
	first, _, _ := strings.Cut(r.stdout.wait(t, "the first line", func(text string) bool { return strings.Contains(text, "\n") }), "\n")
	api, ok := strings.CutPrefix(first, "SLUICE_DISCORD_API_URL=")
	if !ok {
		t.Fatalf("the first line is %q", first)
	}
	return api
}

func TestSimPlaysTheBuiltInSession(t *testing.T) {
	t.Parallel()
	for _, compress := range []string{gateway.CompressZlibStream, gateway.CompressNone} {
		t.Run(compress, func(t *testing.T) {
			t.Parallel()
			record := filepath.Join(t.TempDir(), "sent.jsonl")
			r := start(t, nil, "sim", "--addr", "127.0.0.1:0", "--shards", "2", "--record", record, "--exit")
			shards := connect(t, apiURL(t, r), compress)
			if code := r.code(t); code != 0 {
				t.Fatalf("exit code %d: %s", code, r.stderr.String())
			}

			// --exit has waited until the shards confirmed what they got.
			got := map[string]int{}
			for _, c := range shards {
				for _, name := range c.got() {
					got[name]++
				}
			}
			want, total := map[string]int{"READY": len(shards)}, len(shards)
			for _, e := range corpus.SessionEnvelopes() {
				if e.Type != "READY" && e.Type != "RESUMED" && e.Op == 0 {
					want[e.Type]++
					total++
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the shards got %v, want %v", got, want)
			}
			out := r.stdout.String()
			for _, line := range []string{
				fmt.Sprintf("played the session: %d dispatches", total-2), "confirmed",
				fmt.Sprintf("sent:       %d dispatches\n", total), "identifies: 2\n", "resumes:    0 (0 refused)\n",
			} {
				if !strings.Contains(out, line) {
					t.Errorf("the output does not have %q:\n%s", line, out)
				}
			}

			text, err := os.ReadFile(record)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
				if !json.Valid(line) {
					t.Fatalf("line %d of the record is no JSON", i+1)
				}
			}
			if lines := bytes.Count(text, []byte("\n")); lines != total {
				t.Errorf("the record has %d lines, want %d", lines, total)
			}
		})
	}
}

const short = `{"op":0,"s":1,"t":"READY","d":{"v":10,"user":{"id":"1"},"guilds":[],"session_id":"x","application":{"id":"1"}}}
{"op":11}
{"op":0,"s":2,"t":"MESSAGE_CREATE","d":{"id":"1","guild_id":"1"}}
{"op":0,"s":3,"t":"MESSAGE_DELETE","d":{"id":"1","guild_id":"1"}}
`

func TestSimServesOnUntilInterrupted(t *testing.T) {
	t.Parallel()
	r := start(t, strings.NewReader(short), "sim", "--addr=127.0.0.1:0", "-")
	shards := connect(t, apiURL(t, r), gateway.CompressZlibStream)
	r.stdout.wait(t, "the end of the session", func(text string) bool { return strings.Contains(text, "played the session: 2 dispatches") })
	r.stderr.wait(t, "a word that it serves on", func(text string) bool { return strings.Contains(text, "serving on") })
	select {
	case code := <-r.done:
		t.Fatalf("it ended with code %d", code)
	default:
	}
	for deadline := time.Now().Add(20 * time.Second); len(shards[0].got()) < 3 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if got := fmt.Sprint(shards[0].got()); got != "[READY MESSAGE_CREATE MESSAGE_DELETE]" {
		t.Errorf("the shard got %s", got)
	}
	r.stop()
	if code := r.code(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if out := r.stdout.String(); !strings.Contains(out, "sent:       3 dispatches\nidentifies: 1\n") {
		t.Errorf("the output has no summary:\n%s", out)
	}
}

func TestSimIsInterruptedWhilePlaying(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "sim", "--addr=127.0.0.1:0", "--rate=20")
	shards := connect(t, apiURL(t, r), gateway.CompressNone)
	for deadline := time.Now().Add(20 * time.Second); len(shards[0].got()) < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the shard got %v", shards[0].got())
		}
	}
	r.stop()
	if code := r.code(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if out := r.stdout.String(); !strings.Contains(out, "interrupted after ") || !strings.Contains(out, "identifies: 1\n") {
		t.Errorf("the output has no summary:\n%s", out)
	}
}

func TestSimNamesTheLineThatIsNoMessage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "session.jsonl")
	if err := os.WriteFile(file, []byte(short+"nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "sim", "--addr=127.0.0.1:0", file)
	connect(t, apiURL(t, r), gateway.CompressNone)
	if code := r.code(t); code != 1 || !strings.Contains(r.stderr.String(), "line 5") {
		t.Errorf("exit code %d, want 1 and the line:\n%s", code, r.stderr.String())
	}
}
