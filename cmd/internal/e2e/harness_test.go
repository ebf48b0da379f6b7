package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
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

// A program is a running one of ours.
type program struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // of Wait; valid once ended is closed
	output *output
}

// An output keeps what a program wrote.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs a program. It is killed when the test ends; its output is shown if
// the test failed.
func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	return startInto(t, new(output), name, args...)
}

// startInto is start with an output that several programs may share.
func startInto(t *testing.T, out *output, name string, args ...string) *program {
	t.Helper()
	return startWith(t, out, nil, name, args...)
}

// startWith is startInto with more environment.
func startWith(t *testing.T, out *output, env []string, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(filepath.Join(bin, name), args...), ended: make(chan struct{}), output: out}
	p.cmd.Env = append(clean(os.Environ()), env...)
	if name == "gateway" || name == "sluice" { // workers need none
		p.cmd.Env = append(p.cmd.Env, "DISCORD_TOKEN="+token)
	}
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the program
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, args, tail(p.output.String(), 6000))
		}
	})
	return p
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// clean drops what would configure our programs.
func clean(env []string) (kept []string) {
	for _, pair := range env {
		if !strings.HasPrefix(pair, "SLUICE_") && !strings.HasPrefix(pair, "DISCORD_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// stop asks the program to end and returns its exit code.
func (p *program) stop(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.wait(t)
}

// wait returns the exit code once the program has ended.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(40 * time.Second):
		t.Fatalf("the program did not end:\n%s", tail(p.output.String(), 4000))
		return -1
	}
}

// eventually polls until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 60 s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

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
func (r *run) gateway(t *testing.T, more ...string) *program {
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
		eventually(t, fmt.Sprintf("%d dispatches are sent", n), func() bool { return r.discord.SentCount() >= n })
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

func contains(p *program, text string) bool { return strings.Contains(p.output.String(), text) }

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
