package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// token is of the made-up application 123456789012345678.
const token = "MTIzNDU2Nzg5MDEyMzQ1Njc4.aaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

var bin string // where the programs were built to

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sluice-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		bin = dir
		build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "github.com/sluicehq/sluice/cmd/gateway", "github.com/sluicehq/sluice/cmd/worker", "github.com/sluicehq/sluice/cmd/sluice", "github.com/sluicehq/sluice/cmd/internal/e2e/journal")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return redistest.Run(m)
	}())
}

// start runs one of our programs, see proctest.Start.
func start(t *testing.T, name string, args ...string) *proctest.Program {
	t.Helper()
	return startWith(t, new(proctest.Output), nil, name, args...)
}

// startWith is start with an output that several programs may share, and with
// more environment.
func startWith(t *testing.T, out *proctest.Output, env []string, name string, args ...string) *proctest.Program {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env, cmd.Stdout = proctest.Env(env...), out
	if name == "gateway" || name == "sluice" { // workers need none
		cmd.Env = append(cmd.Env, "DISCORD_TOKEN="+token)
	}
	return proctest.Start(t, cmd)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// A run is one deployment: a Discord, a Redis, a prefix.
type run struct {
	discord *gatewaytest.Server
	rdb     redis.UniversalClient
	prefix  string
	shards  int
	lanes   int
	flags   []string
}

func newRun(t *testing.T, shards int, flags ...string) *run {
	t.Helper()
	discord := gatewaytest.New(gatewaytest.Config{Shards: shards, MaxConcurrency: 16, Ready: gatewaytest.Withhold, HeartbeatInterval: 2 * time.Second})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	r := &run{discord: discord, rdb: redistest.Client(t), prefix: redistest.Prefix(t), shards: shards, lanes: wire.DefaultLanes(shards)}
	r.flags = append([]string{"--redis.url=redis://" + redistest.Addr(t) + "/0", "--redis.prefix=" + r.prefix}, flags...)
	return r
}

// gateway starts a gateway process.
func (r *run) gateway(t *testing.T, more ...string) *proctest.Program {
	t.Helper()
	return start(t, "gateway", append(append([]string{"--discord.api_url=" + r.discord.URL()}, r.flags...), more...)...)
}

// play plays the recorded session; during is called once at least n of it were sent.
func (r *run) play(t *testing.T, rate float64, n int, during func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		session := corpus.Session()
		defer session.Close()
		_, err := r.discord.Play(ctx, session, gatewaytest.PlayOptions{Rate: rate})
		done <- err
	}()
	if during != nil {
		proctest.Eventually(t, fmt.Sprintf("%d dispatches are sent", n), func() bool { return r.discord.SentCount() >= n })
		during()
	}
	if err := <-done; err != nil {
		t.Fatalf("play: %v", err)
	}
}

// An entry with where it was.
type entry struct {
	wire.Entry
	id, stream string
	names      []string
}

// entries returns what all streams hold, stream by stream.
func (r *run) entries(t *testing.T) []entry {
	t.Helper()
	var all []entry
	for shard := range r.shards {
		keys := wire.NewShard(r.prefix, shard, r.shards)
		for lane := range r.lanes {
			for _, key := range []string{keys.Stream(lane), keys.Express(lane)} {
				reply, err := r.rdb.Do(context.Background(), "XRANGE", key, "-", "+").Slice()
				if err != nil {
					t.Fatal(err)
				}
				for _, raw := range reply {
					pair := raw.([]any)
					e := entry{id: pair[0].(string), stream: key}
					values, flat := make(map[string]any), pair[1].([]any)
					for i := 0; i+1 < len(flat); i += 2 {
						e.names = append(e.names, flat[i].(string))
						values[flat[i].(string)] = flat[i+1]
					}
					if e.Entry, err = wire.Decode(values); err != nil {
						t.Fatalf("entry %s of %s: %v", e.id, key, err)
					}
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// length returns the number of entries in all streams.
func (r *run) length(t *testing.T) (n int) {
	t.Helper()
	pipe := r.rdb.Pipeline()
	var lengths []*redis.IntCmd
	for shard := range r.shards {
		keys := wire.NewShard(r.prefix, shard, r.shards)
		for lane := range r.lanes {
			lengths = append(lengths, pipe.XLen(t.Context(), keys.Stream(lane)), pipe.XLen(t.Context(), keys.Express(lane)))
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range lengths {
		n += int(l.Val())
	}
	return n
}

// expected returns the recorded previous states by the payload they stand
// before; a payload that occurs more than once has them in order, nil for none.
func expected(t *testing.T) map[string][]json.RawMessage {
	t.Helper()
	states := corpus.States()
	byPayload := make(map[string][]json.RawMessage)
	for _, e := range corpus.SessionEnvelopes() {
		key := e.Type + string(e.Payload)
		byPayload[key] = append(byPayload[key], states[e.Seq()].Previous)
	}
	return byPayload
}

func unmarshal(t *testing.T, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Errorf("%.200q: %v", text, err)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
