package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

func TestBot(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{Shards: 3, MaxConcurrency: 16, Token: "token"})
	for _, token := range []string{"token", "Bot token", " bot token\n"} {
		got, err := gateway.Bot(t.Context(), client, s.URL()+"/", token)
		ok(t, err)
		want := gateway.BotInfo{
			URL:    "ws://" + strings.Split(s.URL(), "/")[2],
			Shards: 3, Total: 1000, Remaining: 1000, ResetAfter: 4 * time.Hour, MaxConcurrency: 16,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Bot with %q (-want +got):\n%s", token, diff)
		}
	}
	if _, err := gateway.Bot(t.Context(), client, s.URL(), "another-one"); !errors.Is(err, gateway.ErrToken) || strings.Contains(err.Error(), "another-one") {
		t.Errorf("with a wrong token: %v, want ErrToken without the token", err)
	}
	if _, err := gateway.Bot(t.Context(), client, s.URL(), ""); !errors.Is(err, gateway.ErrToken) {
		t.Errorf("without a token: %v, want ErrToken", err)
	}
}

func TestBotErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{http.StatusTooManyRequests, `{}`, "try again after 12 s"},
		{http.StatusBadGateway, `<html>upstream</html>`, "502"},
		{http.StatusOK, `<html>`, "/gateway/bot"},
		{http.StatusOK, `{}`, "no url"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "12")
			w.WriteHeader(tt.status)
			w.Write([]byte(tt.body))
		}))
		_, err := gateway.Bot(t.Context(), client, server.URL, "token")
		server.Close()
		if err == nil || errors.Is(err, gateway.ErrToken) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("status %d, %s: %v, want %q in it", tt.status, tt.body, err, tt.want)
		}
	}
}

func TestApplicationID(t *testing.T) {
	t.Parallel()
	const id = "518854729789722624"
	segment := base64.RawStdEncoding.EncodeToString([]byte(id))
	for _, token := range []string{segment + ".Gabc12.x-y_z", "Bot " + segment + ".a.b", segment + "=.a.b", segment} {
		if got, err := gateway.ApplicationID(token); err != nil || got != id {
			t.Errorf("ApplicationID(%q) = %q, %v, want %q", token, got, err, id)
		}
	}
	for _, token := range []string{"", "Bot ", ".a.b", "abc def.x", base64.RawStdEncoding.EncodeToString([]byte("mfa.secret")) + ".a"} {
		got, err := gateway.ApplicationID(token)
		if !errors.Is(err, gateway.ErrToken) {
			t.Errorf("ApplicationID(%q) = %q, %v, want ErrToken", token, got, err)
		} else if len(token) > 4 && strings.Contains(err.Error(), token) {
			t.Errorf("%q shows the token", err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		change func(*gateway.Config)
		want   string
	}{
		{func(c *gateway.Config) { c.Token = " Bot " }, "token"},
		{func(c *gateway.Config) { c.URL = "https://discord.com" }, "https://discord.com"},
		{func(c *gateway.Config) { c.URL = "" }, "URL"},
		{func(c *gateway.Config) { c.Shard = 2; c.Shards = 2 }, "shard 2 of 2"},
		{func(c *gateway.Config) { c.Shard = -1 }, "shard -1 of 1"},
		{func(c *gateway.Config) { c.Intents = -1 }, "intents"},
		{func(c *gateway.Config) { c.Compress = "zstd" }, `"zstd"`},
		{func(c *gateway.Config) { c.Presence = json.RawMessage(`"idle"`) }, "presence"},
		{func(c *gateway.Config) { c.Presence = json.RawMessage(`{"status":}`) }, "presence"},
		{func(c *gateway.Config) { c.Presence = json.RawMessage(`{"a":"` + strings.Repeat("x", 4096) + `"}`) }, "4096"},
		{func(c *gateway.Config) { c.LargeThreshold = 49 }, "50 to 250"},
		{func(c *gateway.Config) { c.MaxFrameBytes = -1 }, "frame"},
		{func(c *gateway.Config) { c.BackoffMin = time.Second; c.BackoffMax = time.Millisecond }, "backoff"},
		{func(c *gateway.Config) { c.ReadyTimeout = -1 }, "ready timeout"},
		{func(c *gateway.Config) { c.Compress = "x"; c.Intents = -7 }, "intents are -7"}, // all of them at once
	}
	for _, tt := range tests {
		cfg := gateway.Config{Token: "token", URL: "wss://gateway.discord.gg"}
		if _, err := gateway.New(cfg, &recorder{}); err != nil {
			t.Fatalf("New with token and URL only: %v", err)
		}
		tt.change(&cfg)
		if _, err := gateway.New(cfg, &recorder{}); err == nil || !strings.HasPrefix(err.Error(), "gateway: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New: %v, want %q in it", err, tt.want)
		}
	}
	if _, err := gateway.New(gateway.Config{Token: "token", URL: "wss://x"}, nil); err == nil {
		t.Error("New took a nil handler")
	}
}
