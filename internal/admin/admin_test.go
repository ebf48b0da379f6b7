package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	t.Parallel()
	var unready atomic.Pointer[error]
	server, err := admin.Listen("127.0.0.1:0", admin.NewRegistry(), func(context.Context) error {
		if err := unready.Load(); err != nil {
			return *err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string, status int, text string) {
		t.Helper()
		resp, err := client.Get("http://" + server.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || !strings.Contains(string(body), text) {
			t.Errorf("GET %s = %d %q (%v), want %d with %q", path, resp.StatusCode, body, err, status, text)
		}
	}
	get("/healthz", 200, "ok")
	get("/readyz", 200, "ready")
	get("/metrics", 200, "go_goroutines")
	reason := errors.New("redis does not answer")
	unready.Store(&reason)
	get("/readyz", 503, "redis does not answer")
	get("/healthz", 200, "ok")
	get("/nothing", 404, "")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if _, err := admin.Listen("256.0.0.1:1", admin.NewRegistry(), nil); err == nil {
		t.Error("Listen took an address that can't be")
	}
}
