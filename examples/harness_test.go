package examples_test

import (
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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
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
	calls   proctest.Output // of the API: a line each
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
	proctest.Eventually(t, "the gateway is connected", func() bool { return d.discord.Connected(0) })
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

// A program is a running one, with its log apart.
type program struct {
	*proctest.Program
	stderr *proctest.Output
}

// run starts a program, see proctest.Start.
func (d *deployment) run(t *testing.T, name string, env ...string) *program {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{stderr: new(proctest.Output)}
	cmd := exec.Command(filepath.Join(dir, name), d.flags...)
	cmd.Env, cmd.Stderr = proctest.Env(append([]string{"DISCORD_TOKEN=" + token}, env...)...), p.stderr
	p.Program = proctest.Start(t, cmd)
	return p
}
