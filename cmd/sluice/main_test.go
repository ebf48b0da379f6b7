package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// tests runs the tests with the package's Redis server.
type tests struct{ m *testing.M }

func (t tests) Run() int { return redistest.Run(t.m) }

func TestMain(m *testing.M) {
	redisclient.LogTo(slog.New(slog.DiscardHandler))
	testscript.Main(tests{m}, map[string]func(){
		"sluice": func() { os.Exit(mainCode()) },
	})
}

// A script has a deployment of its own: $PREFIX in the Redis at $REDIS, with 2
// shards of 2 lanes. The command
//
//	entry STREAM ID EVENT PAYLOAD [STATE [FIELD=VALUE…]]
//
// writes an entry; STREAM is 0/stream:1, ID - is the server's choice.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			tb := env.T().(testing.TB)
			rdb, prefix := redistest.Client(tb), redistest.Prefix(tb)
			env.Setenv("SLUICE_REDIS_URL", "redis://"+redistest.Addr(tb))
			env.Setenv("SLUICE_REDIS_PREFIX", prefix)
			env.Setenv("PREFIX", prefix)
			env.Setenv("ESC", "\x1b")
			env.Setenv("NL", "\n")
			env.Setenv("NOW", strconv.FormatInt(time.Now().UnixMilli(), 10))
			env.Setenv("RLO", "\u202e") // turns text around
			env.Setenv("LONG", strings.Repeat("x", 1000))
			env.Values["redis"], env.Values["prefix"] = rdb, prefix
			return establish(tb, rdb, prefix)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"entry": func(ts *testscript.TestScript, _ bool, args []string) {
				rdb, prefix := ts.Value("redis").(*redis.Client), ts.Value("prefix").(string)
				ts.Check(writeEntry(rdb, prefix, args))
			},
			"redis": func(ts *testscript.TestScript, _ bool, args []string) {
				do := make([]any, len(args))
				for i := range args {
					do[i] = args[i]
				}
				ts.Check(ts.Value("redis").(*redis.Client).Do(context.Background(), do...).Err())
			},
		},
	})
}

func establish(tb testing.TB, rdb *redis.Client, prefix string) error {
	return rdb.HSet(tb.Context(), wire.TopologyKey(prefix),
		"application", "1100000000000000001", "shards", 2, "lanes", 2, "created", 1932963600000).Err()
}

func writeEntry(rdb *redis.Client, prefix string, args []string) error {
	shard, name, _ := strings.Cut(args[0], "/")
	id := args[1]
	if id == "-" {
		id = "*"
	}
	ms, _, _ := strings.Cut(id, "-")
	e := wire.Entry{Event: args[2], Payload: []byte(args[3]), Codec: wire.JSON, Session: "5994471abb01"}
	fmt.Sscan(shard, &e.Shard)
	fmt.Sscan(ms, &e.Received)
	if len(args) > 4 {
		e.State = []byte(args[4])
	}
	for _, arg := range args[min(5, len(args)):] {
		field, value, _ := strings.Cut(arg, "=")
		switch field {
		case "sequence":
			fmt.Sscan(value, &e.Sequence)
		case "flags":
			e.Flags = wire.ParseFlags(value)
		case "target":
			e.Target = value
		case "trace":
			e.Trace = value
		case "codec":
			e.Codec = value
			for _, text := range []*[]byte{&e.Payload, &e.State} {
				packed, err := wire.ToMsgpack(nil, *text)
				if err != nil {
					return err
				}
				*text = packed
			}
		default:
			return fmt.Errorf("an entry has no field %q here", field)
		}
	}
	return rdb.XAdd(context.Background(), &redis.XAddArgs{
		Stream: "{" + prefix + ":" + shard + "/2}:" + name, ID: id, Values: e.AppendArgs(nil),
	}).Err()
}

// An output is written by the program and read by the test.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// wait returns the output once cond holds for it.
func (o *output) wait(t *testing.T, what string, cond func(text string) bool) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text := o.String()
		if cond(text) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s; the output is\n%s", what, text)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	if err := establish(t, rdb, prefix); err != nil {
		t.Fatal(err)
	}
	server := "--redis.url=redis://" + redistest.Addr(t)
	ours := "--redis.prefix=" + prefix
	for _, tc := range []struct {
		args string
		code int
		want string // on standard error; on standard output if the code is 0
	}{
		{"", 0, "Available Commands"},
		{"--help", 0, "sim"},
		{"tail --help", 0, "--follow"},
		{"tail " + server + " " + ours, 0, ""},
		{"tial", 2, `unknown command "tial"`},
		{"--verbose", 2, "unknown flag: --verbose\nsee sluice --help"},
		{"tail --verbose", 2, "see sluice tail --help"},
		{"tail everything", 2, "everything"},
		{"tail --number many", 2, "number"},
		{"tail --number=-1 " + server, 2, "--number is -1"},
		{"tail --output xml " + server, 2, "text or json"},
		{"tail --from yesterday " + server, 2, "--from"},
		{"tail --event a..b " + server, 2, "empty token"},
		{"tail --guild mine " + server, 2, "--guild"},
		{"tail --shard 2 " + server + " " + ours, 2, "--shard is 2, want 0 to 1"},
		{"tail --lane -1 " + server + " " + ours, 2, "--lane is -1, want 0 to 1"},
		{"tail --guild 4194304 --shard 0 " + server + " " + ours, 2, "leave out"},
		{"tail --redis.url http://x", 2, "redis.url"},
		{"tail --redis.prefix {a}", 2, "redis.prefix"},
		{"tail --config gone.yaml", 2, "gone.yaml"},
		{"tail --redis.prefix empty-place " + server, 1, "no gateway has run"},
		{"tail --redis.url redis://127.0.0.1:1", 1, "refused"},
		{"tail --redis.url embedded", 1, "embedded"},
		{"status --output xml " + server, 2, "text or json"},
		{"status all", 2, "all"},
		{"status --lag-warning 5m --lag-critical 1m " + server, 2, "--lag-critical 1m0s"},
		{"status --redis.prefix empty-place " + server, 1, "no gateway has run"},
		{"topology --help", 0, "rm"},
		{"topology rm all", 2, "all"},
		{"topology --output xml " + server, 2, "text or json"},
		{"topology --redis.prefix empty-place " + server, 1, "no gateway has run"},
		{"dead", 0, "retry"},
		{"dead ls --number 0 " + server + " " + ours, 2, "--number is 0"},
		{"dead ls --output xml " + server + " " + ours, 2, "text or json"},
		{"dead ls --replay.group {a} " + server, 2, "replay.group"},
		{"dead show " + server, 2, "accepts 1 arg"},
		{"dead show 0/1 " + server + " " + ours, 2, "no letter's id"},
		{"dead show x/1-1 " + server + " " + ours, 2, "no letter's id"},
		{"dead retry " + server + " " + ours, 2, "--all"},
		{"dead retry --all 0/1-1 " + server + " " + ours, 2, "--all"},
		{"sim --rate -5", 2, "--rate"},
		{"sim --shards 0", 2, "--shards"},
		{"sim --max-concurrency 0", 2, "--max-concurrency"},
		{"sim one two", 2, "at most 1"},
		{"sim gone.jsonl", 1, "gone.jsonl"},
		{"sim --addr nowhere:x", 1, "unknown port"},
		{"sim --record /gone/x", 1, "/gone/x"},
	} {
		var stdout, stderr output
		code := run(t.Context(), strings.Fields(tc.args), strings.NewReader(""), &stdout, &stderr)
		said := stderr.String()
		if tc.code == 0 {
			said = stdout.String()
		}
		if code != tc.code || !strings.Contains(said, tc.want) {
			t.Errorf("sluice %s: code %d, want %d, about %q; it says\n%s", tc.args, code, tc.code, tc.want, said)
		}
	}
}

// running is a program that runs beside the test.
type running struct {
	stdout, stderr output
	done           chan int
	stop           context.CancelFunc
}

func start(t *testing.T, stdin io.Reader, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{done: make(chan int, 1), stop: cancel}
	go func() { r.done <- run(ctx, args, stdin, &r.stdout, &r.stderr) }() // ends with ctx
	t.Cleanup(cancel)
	return r
}

// code returns the exit code.
func (r *running) code(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.done:
		return code
	case <-time.After(30 * time.Second):
		t.Fatalf("the program does not end; it says\n%s\n%s", r.stdout.String(), r.stderr.String())
		return -1
	}
}
