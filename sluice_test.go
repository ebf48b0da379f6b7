package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

// mainVar names the one of mains that the test binary is to be.
const mainVar = "TEST_MAIN"

func TestMain(m *testing.M) {
	if name := os.Getenv(mainVar); name != "" {
		mains[name]() // does not return
	}
	redistest.Main(m)
}

// Told is an event of the tests' own.
const Told listener.Kind[string, listener.None] = "test.told"

type told = listener.Event[string, listener.None]

func say(what string) func(context.Context, *told) error {
	return func(_ context.Context, e *told) error {
		fmt.Println(what, e.New)
		return nil
	}
}

func tell(ctx context.Context, env *sluice.Env, what string) error {
	_, err := env.Publisher.Publish(ctx, string(Told), "", what)
	return err
}

func onStop(env *sluice.Env, what string, err error) {
	env.OnStop(func(context.Context) error {
		fmt.Println("stop", what)
		return err
	})
}

// mains are programs as users write them.
var mains = map[string]func(){
	"setup fails": func() {
		sluice.Worker(func(_ context.Context, env *sluice.Env) error {
			onStop(env, "a", nil)
			return errors.New("no database")
		})
	},
	"nothing": func() {
		sluice.Worker(func(context.Context, *sluice.Env) error { return nil })
	},
	"stop fails": func() {
		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
			env.Add(Told.Handle("say", say("heard")))
			onStop(env, "a", errors.New("not flushed"))
			return tell(ctx, env, "it")
		})
	},
	"groups": func() {
		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
			env.Group("workers").Add(Told.Handle("say", say("workers heard")))
			env.Group("second").Add(Told.Handle("say", say("second heard")))
			env.Group("second").Add(Told.Handle("again", say("second heard again")))
			second := env.Group("second")
			fmt.Println("same", env.Group("workers") == env.Registry, env.Group("second") == second)
			return tell(ctx, env, "it")
		})
	},
	"one group": func() { // and it is not the configured one
		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
			env.Group("second").Add(Told.Handle("say", say("second heard")))
			return tell(ctx, env, "it")
		})
	},
	"stop": func() {
		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
			env.Add(Told.Handle("slow", func(context.Context, *told) error {
				fmt.Println("begin")
				<-ctx.Done() // setup's, which ends with the first signal
				time.Sleep(200 * time.Millisecond)
				fmt.Println("end")
				return nil
			}))
			for _, what := range []string{"a", "b", "c"} {
				onStop(env, what, nil)
			}
			return tell(ctx, env, "it")
		})
	},
	"stuck": func() {
		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
			env.Add(Told.Handle("stuck", func(context.Context, *told) error {
				fmt.Println("begin")
				select {}
			}))
			return tell(ctx, env, "it")
		})
	},
	"handlers": func() {
		sluice.Worker(func(_ context.Context, env *sluice.Env) error {
			hello := func(s *discordgo.Session, g *discordgo.GuildCreate) {
				fmt.Println(s.State.User.Username, "is in", g.Name)
			}
			env.AddHandler(hello)
			env.Group("second").AddHandler(hello)
			return nil
		})
	},
	"bot": func() {
		sluice.Bot(func(_ context.Context, env *sluice.Env) error {
			env.Add(listener.MessageUpdate.Handle("edits", func(_ context.Context, e *event.MessageUpdate) error {
				fmt.Println(env.Session.State.User.Username, "saw", e.Old.Content, "become", e.New.Content)
				return nil
			}))
			onStop(env, "a", nil)
			return nil
		})
	},
	"bot, setup fails": func() {
		sluice.Bot(func(context.Context, *sluice.Env) error { return errors.New("no database") })
	},
}

func TestEndsWithItsReason(t *testing.T) {
	t.Parallel()
	tests := []struct {
		main  string
		flags []string
		code  int
		want  []string // on either output
	}{
		{"setup fails", nil, 1, []string{"setup: no database", "stop a"}},
		{"nothing", nil, 1, []string{"no listener"}},
		{"nothing", []string{"--redis.url=http://x", "--replay.lease=never"}, 2, []string{"redis.url", "replay.lease", "never"}},
		{"nothing", []string{"--no.such=1"}, 2, []string{"--no.such"}},
		{"nothing", []string{"--help"}, 0, []string{"worker of Sluice", "--replay.group"}},
		{"bot", []string{"--help"}, 0, []string{"bot on Sluice", "--redis.url"}},
		{"bot", nil, 2, []string{"discord.token", "DISCORD_TOKEN"}},
		{"handlers", nil, 2, []string{"discordgo handlers", "discord.token", "DISCORD_TOKEN"}},
	}
	for _, test := range tests {
		t.Run(test.main+strings.Join(test.flags, " "), func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			d.record(t)
			p := d.run(t, test.main, "", test.flags...)
			p.Ends(t, test.code)
			for _, want := range test.want {
				if !strings.Contains(p.Output.String(), want) {
					t.Errorf("it does not speak of %q", want)
				}
			}
		})
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	p := d.run(t, "groups", "")
	p.Prints(t, "same true true", "workers heard it", "second heard it", "second heard again it")
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
}

// TestGroupWithoutListeners would lose what the group's other workers wait for.
func TestGroupWithoutListeners(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	p := d.run(t, "one group", "")
	p.Prints(t, "second heard it")
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
	keys, err := d.rdb.Keys(t.Context(), "{"+d.prefix+":0/1}:stream:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("streams: %q, %v", keys, err)
	}
	for _, key := range keys {
		for _, g := range d.rdb.XInfoGroups(t.Context(), key).Val() {
			if g.Name != "second" {
				t.Errorf("%s has the group %s", key, g.Name)
			}
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	p := d.run(t, "stop", "")
	p.Prints(t, "begin")
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
	var order []string
	for line := range strings.Lines(p.Output.String()) {
		if line = strings.TrimSpace(line); line == "end" || strings.HasPrefix(line, "stop ") {
			order = append(order, line)
		}
	}
	if want := []string{"end", "stop c", "stop b", "stop a"}; !slices.Equal(order, want) {
		t.Errorf("it stopped in the order %q, want %q", order, want)
	}
}

func TestStopFails(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	p := d.run(t, "stop fails", "")
	p.Prints(t, "heard it")
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 1)
	if !strings.Contains(p.Output.String(), "not flushed") {
		t.Error("it does not tell what failed")
	}
}

func TestSecondSignal(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	p := d.run(t, "stuck", "")
	p.Prints(t, "begin")
	p.Signal(t, syscall.SIGTERM)
	proctest.Eventually(t, "it stops", func() bool { return strings.Contains(p.Output.String(), "worker stops") })
	proctest.Eventually(t, "a second signal ends it", func() bool { // one that comes at once may still be the first's
		p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.Ended:
			return true
		default:
			return false
		}
	})
	p.Ends(t, -1) // by the signal, long before drain_timeout
}

func TestWaitsForTopology(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	p := d.run(t, "groups", "")
	proctest.Eventually(t, "it says what it waits for", func() bool { return strings.Contains(p.Output.String(), "waiting for a gateway") })
	d.record(t)
	p.Prints(t, "second heard it")
	q := d.run(t, "groups", "", "--redis.prefix=nobody")
	proctest.Eventually(t, "it waits", func() bool { return strings.Contains(q.Output.String(), "waiting for a gateway") })
	q.Signal(t, syscall.SIGTERM)
	q.Ends(t, 0)
}

// TestUserBeforeHandlers has a worker learn from the API who the bot is, because
// no gateway has cached it, and then gives it the first event.
func TestUserBeforeHandlers(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.record(t)
	asked := make(chan string, 100)
	answer := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		select {
		case <-answer:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"9","username":"tea-bot"}`)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(api.Close)
	if err := d.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "{" + d.prefix + ":0/1}:stream:0", Values: []string{
		"event", "GUILD_CREATE", "payload", `{"id":"1","name":"Tea House"}`, "state", "", "shard", "0", "sequence", "1", "session", "s",
		"received", "1", "codec", "json", "flags", "", "trace", "", "target", "",
	}}).Err(); err != nil {
		t.Fatal(err)
	}
	p := d.run(t, "handlers", token, "--discord.api_url="+api.URL+"/v10")
	proctest.Eventually(t, "it says what it waits for", func() bool { return strings.Contains(p.Output.String(), "who the bot is") })
	if got, want := <-asked, "GET /v10/users/@me Bot "+token; got != want {
		t.Errorf("it asked %q, want %q", got, want)
	}
	close(answer)
	p.Prints(t, "tea-bot is in Tea House")
	proctest.Eventually(t, "each group's handler is called", func() bool { return strings.Count(p.Output.String(), "tea-bot is in Tea House") == 2 })
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
	if strings.Contains(p.Output.String(), token) {
		t.Error("it shows the token")
	}
}

func TestBotEmbedded(t *testing.T) {
	t.Parallel()
	discord := gatewaytest.New(gatewaytest.Config{})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	flags := []string{"--discord.api_url=" + discord.URL(), "--redis.url=embedded", "--redis.embedded_addr=127.0.0.1:0"}

	p := run(t, "bot", token, flags...)
	if err := discord.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct{ name, payload string }{
		{"MESSAGE_CREATE", `{"id":"1100000000000000003","channel_id":"2","guild_id":"1","content":"tee"}`},
		{"MESSAGE_UPDATE", `{"id":"1100000000000000003","channel_id":"2","guild_id":"1","content":"tea"}`},
	} {
		if _, err := discord.Send(0, d.name, []byte(d.payload)); err != nil {
			t.Fatal(err)
		}
	}
	p.Prints(t, "bot saw tee become tea")
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
	for _, want := range []string{"nothing survives it", "stop a"} {
		if !strings.Contains(p.Output.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if closes := discord.Closes(); len(closes) != 1 || closes[0].Code != 4000 {
		t.Errorf("connections closed: %+v, want one with 4000", closes)
	}

	p = run(t, "bot, setup fails", token, flags...)
	p.Ends(t, 1)
	if !strings.Contains(p.Output.String(), "setup: no database") {
		t.Error("it does not tell what failed")
	}
}

func TestWorkerEmbedded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := run(t, "groups", "", "--redis.url=embedded", "--redis.embedded_addr="+addr)
	proctest.Eventually(t, "it waits for a gateway", func() bool { return strings.Contains(p.Output.String(), "waiting for a gateway") })
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	(&deployment{rdb: rdb, prefix: "sluice"}).record(t)
	p.Prints(t, "workers heard it", "second heard it")

	q := run(t, "groups", "", "--redis.url=embedded", "--redis.embedded_addr="+addr)
	q.Ends(t, 1)
	if !strings.Contains(q.Output.String(), "redis.embedded_addr") {
		t.Error("it does not tell that the address is taken")
	}
	p.Signal(t, syscall.SIGTERM)
	p.Ends(t, 0)
}

// token is of the made-up application 123456789012345678.
const token = "MTIzNDU2Nzg5MDEyMzQ1Njc4.aaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// A deployment is a Redis and a prefix.
type deployment struct {
	rdb    *redis.Client
	prefix string
	flags  []string
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{rdb: redistest.Client(t), prefix: redistest.Prefix(t)}
	d.flags = []string{"--redis.url=redis://" + redistest.Addr(t) + "/0", "--redis.prefix=" + d.prefix}
	return d
}

// record records a topology, as a gateway would.
func (d *deployment) record(t *testing.T) {
	t.Helper()
	if err := d.rdb.HSet(t.Context(), d.prefix+":topology", "application", "123456789012345678", "shards", 1, "lanes", 2, "created", 1).Err(); err != nil {
		t.Fatal(err)
	}
}

func (d *deployment) run(t *testing.T, main, token string, flags ...string) *proctest.Program {
	t.Helper()
	return run(t, main, token, append(slices.Clone(d.flags), flags...)...)
}

// run runs one of mains, see proctest.Start.
func run(t *testing.T, main, token string, flags ...string) *proctest.Program {
	t.Helper()
	if mains[main] == nil {
		t.Fatalf("there is no main %q", main)
	}
	cmd := exec.Command(os.Args[0], flags...)
	cmd.Env = proctest.Env(mainVar+"="+main, "DISCORD_TOKEN="+token)
	return proctest.Start(t, cmd)
}
