package e2e

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	p := start(t, "gateway", "--forward.codec=bson", "--redis.url=http://x", "--discord.intents=EVERYTHING", "--no.such=1", "--cache.memory_bytes=lots")
	if code := p.Wait(t); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{"forward.codec", "bson", "redis.url", "discord.intents", "EVERYTHING", "--no.such", "cache.memory_bytes", "lots"} {
		if !strings.Contains(p.Output.String(), want) {
			t.Errorf("output does not name %s:\n%s", want, p.Output.String())
		}
	}
	if strings.Contains(p.Output.String(), token) {
		t.Error("the token is shown")
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gateway", "worker"} {
		p := start(t, name, "--help")
		if code := p.Wait(t); code != 0 || !strings.Contains(p.Output.String(), "--redis.url") {
			t.Errorf("%s --help: exit code %d, %s", name, code, p.Output.String())
		}
	}
}

// TestWaitsForRedis starts gateway and worker before there is a Redis, and
// before there is a Discord.
func TestWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	discord := gatewaytest.New(gatewaytest.Config{})
	t.Cleanup(func() { discord.Close() })
	addr := freeAddr(t)
	flags := []string{"--redis.url=redis://" + server.Addr() + "/0", "--admin.addr=127.0.0.1:0"}
	gateway := start(t, "gateway", append(flags, "--discord.api_url=http://"+addr+"/api/v10")...)
	worker := start(t, "worker", flags...)
	for name, p := range map[string]*proctest.Program{"gateway": gateway, "worker": worker} {
		proctest.Eventually(t, name+" says that it waits for Redis", func() bool { return strings.Contains(p.Output.String(), server.Addr()) })
		if status, body := get(t, p, "/readyz"); status != 503 {
			t.Errorf("%s: /readyz = %d %s, want 503", name, status, body)
		}
		if status, _ := get(t, p, "/healthz"); status != 200 {
			t.Errorf("%s: /healthz = %d, want 200", name, status)
		}
	}
	server.Restart(t)
	proctest.Eventually(t, "the gateway says that it waits for Discord", func() bool { return strings.Contains(gateway.Output.String(), "discord does not answer") })
	later := gatewaytest.New(gatewaytest.Config{Addr: addr})
	if err := later.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { later.Close() })
	if err := later.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*proctest.Program{"gateway": gateway, "worker": worker} {
		proctest.Eventually(t, name+" is ready", func() bool { status, _ := get(t, p, "/readyz"); return status == 200 })
		if _, body := get(t, p, "/metrics"); !strings.Contains(body, "sluice_") {
			t.Errorf("%s has no metrics of its own", name)
		}
		if code := p.Stop(t); code != 0 {
			t.Errorf("%s: exit code %d, want 0", name, code)
		}
		if strings.Contains(p.Output.String(), token) {
			t.Errorf("%s shows the token", name)
		}
	}
}

func TestRefusedByDiscord(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  gatewaytest.Config
		code int // Discord closes with
		want string
	}{
		{"token refused by the API", gatewaytest.Config{Token: "another"}, 0, "developer portal"},
		{"token refused", gatewaytest.Config{}, 4004, "developer portal"},
		{"invalid intents", gatewaytest.Config{}, 4013, "intents"},
		{"intents not allowed", gatewaytest.Config{}, 4014, "developer portal"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			discord := gatewaytest.New(test.cfg)
			if err := discord.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { discord.Close() })
			p := start(t, "gateway", "--discord.api_url="+discord.URL(), "--redis.url=redis://"+redistest.Addr(t)+"/0", "--redis.prefix="+redistest.Prefix(t))
			if test.code != 0 {
				if err := discord.WaitConnected(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if err := discord.CloseShard(0, test.code); err != nil {
					t.Fatal(err)
				}
			}
			if code := p.Wait(t); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if !strings.Contains(p.Output.String(), test.want) {
				t.Errorf("output does not speak of %q:\n%s", test.want, p.Output.String())
			}
		})
	}
}

// TestOneShardRefused has Discord refuse one of two shards: the other goes on, and
// the program ends once it is refused too.
func TestOneShardRefused(t *testing.T) {
	t.Parallel()
	discord := gatewaytest.New(gatewaytest.Config{Shards: 2, MaxConcurrency: 2})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	p := start(t, "gateway", "--discord.api_url="+discord.URL(), "--redis.url=redis://"+redistest.Addr(t)+"/0", "--redis.prefix="+redistest.Prefix(t), "--admin.addr=127.0.0.1:0")
	if err := discord.WaitConnected(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := discord.CloseShard(0, 4010); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "it is not ready, and says why", func() bool {
		status, body := get(t, p, "/readyz")
		return status == 503 && strings.Contains(body, "4010")
	})
	if !discord.Connected(1) {
		t.Error("the other shard is not connected any more")
	}
	if err := discord.CloseShard(1, 4010); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

func TestOtherTopology(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1)
	if err := r.rdb.HSet(t.Context(), wire.TopologyKey(r.prefix), "application", "999", "shards", 1, "lanes", 16, "created", 1).Err(); err != nil {
		t.Fatal(err)
	}
	p := r.gateway(t)
	if code := p.Wait(t); code != 1 || !strings.Contains(p.Output.String(), "999") || !strings.Contains(p.Output.String(), "123456789012345678") {
		t.Errorf("another application's topology: exit code %d\n%s", code, p.Output.String())
	}
	if err := r.rdb.HSet(t.Context(), wire.TopologyKey(r.prefix), "application", "123456789012345678", "shards", 2).Err(); err != nil {
		t.Fatal(err)
	}
	p = r.gateway(t, "--discord.shards=4")
	if code := p.Wait(t); code != 1 || !strings.Contains(p.Output.String(), "sluice topology") {
		t.Errorf("another number of shards: exit code %d\n%s", code, p.Output.String())
	}
}

var served = regexp.MustCompile(`serving metrics and health" addr=(\S+)`)

func get(t *testing.T, p *proctest.Program, path string) (status int, body string) {
	t.Helper()
	var addr []string
	proctest.Eventually(t, "the admin address is logged", func() bool { addr = served.FindStringSubmatch(p.Output.String()); return addr != nil })
	resp, err := http.Get("http://" + addr[1] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestScenario055RightsAtStart starts gateway and worker as a user that may not
// do all they need to.
func TestScenario055RightsAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newViolence(t, server.Addr())
	gateway := r.gateway(t)
	if err := r.discord.WaitConnected(t.Context(), 0); err != nil { // a topology is recorded
		t.Fatal(err)
	}
	gateway.Stop(t)
	if err := r.rdb.Do(t.Context(), "ACL", "SETUSER", "short", "on", ">secret", "~*", "+@all", "-xpending", "-xtrim", "-evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	url := "--redis.url=redis://short:secret@" + server.Addr() + "/0"
	for _, p := range []*proctest.Program{r.gateway(t, url), start(t, "worker", append(r.flags, url)...)} {
		if code := p.Wait(t); code != 1 {
			t.Errorf("%s: exit code %d, want 1", p.Cmd.Path, code)
		}
		for _, want := range []string{"XPENDING", "XTRIM", "EVALSHA", "ACL LIST"} {
			if !p.Contains(want) {
				t.Errorf("%s does not name %s:\n%s", p.Cmd.Path, want, p.Output.String())
			}
		}
	}
}

// TestScenario150ShardFromTheEntry sends a guild's dispatch over shard 3 of 4 and
// a direct message's over shard 0: a worker that is told no number of shards
// reports the shard that the entry came from.
func TestScenario150ShardFromTheEntry(t *testing.T) {
	t.Parallel()
	r := newRun(t, 4)
	r.gateway(t)
	w := start(t, "worker", r.flags...)
	for shard := range 4 {
		if err := r.discord.WaitConnected(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	all := corpus.Scenarios()
	scenario := all[slices.IndexFunc(all, func(s corpus.Scenario) bool { return s.Number() == "150" })]
	envelope := scenario.Envelopes[0]
	for shard, payload := range map[int]string{3: string(envelope.Payload), 0: `{"id":"5","channel_id":"6","content":"direct"}`} {
		if _, err := r.discord.Send(shard, envelope.Type, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`(?m)^3/x?\d+/\S+ ` + envelope.Type, `(?m)^0/x?\d+/\S+ ` + envelope.Type + ` guild=- .*"direct"`} {
		pattern := regexp.MustCompile(want)
		proctest.Eventually(t, "the worker prints "+want, func() bool { return pattern.MatchString(w.Output.String()) })
	}
}
