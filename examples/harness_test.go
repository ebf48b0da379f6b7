package examples_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
	"github.com/sluicehq/sluice/internal/redistest"
)

// token is of the made-up application 123456789012345678, which is the id of the
// bot's user too.
const (
	token = "MTIzNDU2Nzg5MDEyMzQ1Njc4.aaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	self  = "123456789012345678"
)

func TestMain(m *testing.M) {
	code := redistest.Run(m)
	if dir, err := build(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// build builds the gateway, the tool and all examples, once, and returns where to.
var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "sluice-examples"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../cmd/gateway", "../cmd/sluice", "./...").CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// A deployment is a Discord with its API, and a Redis.
type deployment struct {
	discord *gatewaytest.Server
	rdb     *redis.Client
	prefix  string
	flags   []string
	calls   output // of the API: a line each
}

// deploy starts what an example needs around it, but for the gateway.
func deploy(t *testing.T, cfg gatewaytest.Config) *deployment {
	t.Helper()
	d := &deployment{rdb: redistest.Client(t), prefix: redistest.Prefix(t)}
	cfg.HeartbeatInterval = time.Second
	d.discord = gatewaytest.New(cfg)
	if err := d.discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.discord.Close() })
	api := httptest.NewServer(d.api(t))
	t.Cleanup(api.Close)
	d.flags = []string{
		"--discord.api_url=" + api.URL + "/api/v10",
		"--redis.url=redis://" + redistest.Addr(t) + "/0", "--redis.prefix=" + d.prefix,
	}
	return d
}

// api is Discord's: how to connect, and what the examples call.
func (d *deployment) api(t *testing.T) http.Handler {
	base, err := url.Parse(d.discord.URL())
	if err != nil {
		t.Fatal(err)
	}
	base.Path = ""
	mux := http.NewServeMux()
	mux.Handle("GET /api/v10/gateway/bot", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }})
	mux.HandleFunc("POST /api/v10/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(&d.calls, "%s %s\n", strings.TrimPrefix(r.URL.Path, "/api/v10"), body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"1"}`)
	})
	return mux
}

// gateway starts cmd/gateway and waits until it is connected.
func (d *deployment) gateway(t *testing.T) {
	t.Helper()
	d.run(t, "gateway")
	d.connected(t)
}

func (d *deployment) connected(t *testing.T) {
	t.Helper()
	eventually(t, "the gateway is connected", func() bool { return d.discord.Connected(0) })
}

// send has Discord send a dispatch.
func (d *deployment) send(t *testing.T, name, payload string) {
	t.Helper()
	if _, err := d.discord.Send(0, name, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

// entries returns how many are in the streams.
func (d *deployment) entries(t *testing.T) (n int64) {
	t.Helper()
	keys, err := d.rdb.Keys(t.Context(), "{"+d.prefix+":*}:stream:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		n += d.rdb.XLen(t.Context(), key).Val()
	}
	return n
}

// A program is a running one.
type program struct {
	cmd            *exec.Cmd
	ended          chan struct{} // closed once it has
	stdout, stderr output
}

// run starts a program. It is killed when the test ends; its output is shown if
// the test failed.
func (d *deployment) run(t *testing.T, name string, env ...string) *program {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: exec.Command(filepath.Join(dir, name), d.flags...), ended: make(chan struct{})}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "SLUICE_") && !strings.HasPrefix(pair, "DISCORD_") {
			p.cmd.Env = append(p.cmd.Env, pair)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, "DISCORD_TOKEN="+token), env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the program
		defer close(p.ended)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s%s", name, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

// prints waits until the program has printed every one of the lines.
func (p *program) prints(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		eventually(t, "it prints "+line, func() bool {
			return strings.Contains("\n"+p.stdout.String(), "\n"+line+"\n")
		})
	}
}

// stop asks the program to end, as a user or a supervisor does, and wants it to
// end cleanly.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 0)
}

// ends waits until the program has ended, and wants this exit code.
func (p *program) ends(t *testing.T, code int) {
	t.Helper()
	eventually(t, "it ends", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
}

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

// An output keeps what is written to it.
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
