package gatewaytest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const identify = `{"op":2,"d":{"token":"token","intents":1,"shard":[0,1],"properties":{}}}`

func start(t *testing.T, cfg gatewaytest.Config) *gatewaytest.Server {
	t.Helper()
	s := gatewaytest.New(cfg)
	ok(t, s.Start())
	t.Cleanup(func() { ok(t, s.Close()) })
	return s
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A socket is a client without manners of its own.
type socket struct {
	t *testing.T
	*websocket.Conn
}

func dial(t *testing.T, s *gatewaytest.Server) socket {
	t.Helper()
	url := "ws" + strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http"), "/api/v10") + "/?v=10&encoding=json"
	ws, _, err := websocket.DefaultDialer.Dial(url, nil)
	ok(t, err)
	t.Cleanup(func() { ws.Close() })
	c := socket{t, ws}
	ok(t, ws.SetReadDeadline(time.Now().Add(20*time.Second)))
	if m := c.next(); m.Op != 10 {
		t.Fatalf("first message has op %d, want hello", m.Op)
	}
	return c
}

type message struct {
	Op int             `json:"op"`
	T  string          `json:"t"`
	S  int64           `json:"s"`
	D  json.RawMessage `json:"d"`
}

func (c socket) next() (m message) {
	c.t.Helper()
	ok(c.t, c.ReadJSON(&m))
	return m
}

func (c socket) send(text string) {
	c.t.Helper()
	ok(c.t, c.WriteMessage(websocket.TextMessage, []byte(text)))
}

// code reads on until the server closes, and returns its code.
func (c socket) code() int {
	c.t.Helper()
	for {
		_, _, err := c.ReadMessage()
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return closed.Code
		}
		ok(c.t, err)
	}
}

func (c socket) resume(session string, sequence int64) message {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"op":6,"d":{"token":"token","session_id":%q,"seq":%d}}`, session, sequence))
	return c.next()
}

func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(c socket)
		want int
	}{
		{"no JSON", func(c socket) { c.send(`{"op":`) }, 4002},
		{"no op", func(c socket) { c.send(`{}`) }, 4002},
		{"too long", func(c socket) { c.send(`{"op":1,"d":"` + strings.Repeat("x", 4096) + `"}`) }, 4002},
		{"unknown op", func(c socket) { c.send(`{"op":77}`) }, 4001},
		{"a presence before IDENTIFY", func(c socket) { c.send(`{"op":3,"d":{}}`) }, 4003},
		{"a wrong token", func(c socket) { c.send(strings.Replace(identify, `"token":"token"`, `"token":"x"`, 1)) }, 4004},
		{"two IDENTIFYs", func(c socket) { c.send(identify); c.send(identify) }, 4005},
		{"an impossible shard", func(c socket) { c.send(strings.Replace(identify, `[0,1]`, `[1,1]`, 1)) }, 4010},
		{"no intents", func(c socket) { c.send(strings.Replace(identify, `"intents":1,`, ``, 1)) }, 4013},
		{"a flood", func(c socket) {
			for range 121 {
				c.send(`{"op":1,"d":null}`)
			}
		}, 4008},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, start(t, gatewaytest.Config{Token: "token"}))
			tt.do(c)
			if got := c.code(); got != tt.want {
				t.Errorf("closed with %d, want %d", got, tt.want)
			}
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{BufferDispatches: 5})
	c := dial(t, s)
	c.send(identify)
	if m := c.next(); m.T != "READY" || m.S != 1 {
		t.Fatalf("got %s %d, want READY 1", m.T, m.S)
	}
	id := s.SessionID(0)
	c.Close()
	ok(t, s.WaitCloses(within(t), 1))
	for range 3 {
		_, err := s.Send(0, "TYPING_START", []byte(`{}`))
		ok(t, err)
	}
	c = dial(t, s)
	got := []message{c.resume(id, 2), c.next(), c.next()}
	if got[0].S != 3 || got[1].S != 4 || got[2].T != "RESUMED" || got[2].S != 5 {
		t.Errorf("got %+v, want 3, 4, RESUMED 5", got)
	}

	// A second resume takes the session over, and gets that RESUMED again.
	other := dial(t, s)
	if m := other.resume(id, 4); m.T != "RESUMED" || m.S != 5 {
		t.Errorf("got %+v, want RESUMED 5", m)
	}
	if _, _, err := c.ReadMessage(); err == nil {
		t.Error("the old connection goes on")
	}
	if m := dial(t, s).resume(id, 0); m.Op != 9 || string(m.D) != "false" {
		t.Errorf("a resume from before what is kept got %+v, want op 9 false", m)
	}
	if m := dial(t, s).resume("unknown", 1); m.Op != 9 || string(m.D) != "false" {
		t.Errorf("a resume of an unknown session got %+v, want op 9 false", m)
	}
	c = dial(t, s)
	c.send(fmt.Sprintf(`{"op":6,"d":{"token":"token","session_id":%q,"seq":99}}`, id))
	if got := c.code(); got != 4007 {
		t.Errorf("a resume from the future was closed with %d, want 4007", got)
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	for _, code := range []int{websocket.CloseNormalClosure, websocket.CloseGoingAway, 4000, 1006} {
		s := start(t, gatewaytest.Config{})
		c := dial(t, s)
		c.send(identify)
		c.next()
		id := s.SessionID(0)
		if code != 1006 {
			ok(t, c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second)))
		} else {
			c.Close()
		}
		ok(t, s.WaitCloses(within(t), 1))
		if got := s.Closes()[0]; got.Code != code || got.Session != id {
			t.Errorf("saw %+v, want code %d of session %s", got, code, id)
		}
		m := dial(t, s).resume(id, 1)
		if ended := m.Op == 9; ended != (code == 1000 || code == 1001) {
			t.Errorf("after %d a resume got %+v", code, m)
		}
	}

	s := start(t, gatewaytest.Config{SessionTimeout: time.Millisecond})
	c := dial(t, s)
	c.send(identify)
	c.next()
	id := s.SessionID(0)
	c.Close()
	ok(t, s.WaitCloses(within(t), 1))
	time.Sleep(5 * time.Millisecond) // the timeout, not a wait for anything
	if m := dial(t, s).resume(id, 1); m.Op != 9 {
		t.Errorf("after the timeout a resume got %+v, want op 9", m)
	}
}

func TestOrdersKeepTheirPlace(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	c := dial(t, s)
	c.send(identify)
	c.next()
	_, err := s.Send(0, "A", []byte(`1`))
	ok(t, err)
	ok(t, s.RequestHeartbeat(0))
	_, err = s.Send(0, "B", nil)
	ok(t, err)
	_, err = s.SendRaw(0, []byte(`{"op":0,"t":"C","s":77}`))
	ok(t, err)
	ok(t, s.Invalidate(0, true))
	ok(t, s.Reconnect(0))
	ok(t, s.CloseShard(0, 4999))
	var got []string
	for range 6 {
		m := c.next()
		got = append(got, fmt.Sprintf("%d%s%d", m.Op, m.T, m.S))
	}
	if want := "0A2 10 0B3 0C77 90 70"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, " "), want)
	}
	if code := c.code(); code != 4999 {
		t.Errorf("closed with %d, want 4999", code)
	}
	if err := s.Reconnect(0); err == nil {
		t.Error("Reconnect of a shard that was closed returned nil")
	}
	if err := s.Reconnect(5); err == nil {
		t.Error("Reconnect of a shard that never was returned nil")
	}
	if _, err := s.Send(5, "A", nil); err == nil {
		t.Error("Send to a shard without a session returned nil")
	}
	if _, err := s.Send(0, "A", []byte(`{`)); err == nil {
		t.Error("Send took half an object")
	}
}

func TestEarlyIdentify(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{IdentifyInterval: time.Hour, MaxConcurrency: 2})
	for _, tt := range []struct {
		shard string
		op    int
	}{{"[0,4]", 0}, {"[1,4]", 0}, {"[2,4]", 9}} {
		c := dial(t, s)
		c.send(strings.Replace(identify, "[0,1]", tt.shard, 1))
		if m := c.next(); m.Op != tt.op {
			t.Errorf("shard %s got op %d, want %d", tt.shard, m.Op, tt.op)
		}
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{Ready: func(shard, shards int) json.RawMessage {
		return fmt.Appendf(nil, `{"a":[%d,%d],"session_id":"mine","shard":[7,7],"z":{}}`, shard, shards)
	}})
	c := dial(t, s)
	c.send(strings.Replace(identify, "[0,1]", "[1,2]", 1))
	var d struct {
		A, Shard [2]int
		Session  string `json:"session_id"`
		URL      string `json:"resume_gateway_url"`
		Z        json.RawMessage
	}
	ok(t, json.Unmarshal(c.next().D, &d))
	if d.A != [2]int{1, 2} || d.Shard != [2]int{1, 2} || d.Session != s.SessionID(1) || !strings.HasSuffix(d.URL, "/resume") || string(d.Z) != "{}" {
		t.Errorf("READY is %+v", d)
	}
	s.SetReady(nil)
	c = dial(t, s)
	c.send(strings.Replace(identify, "[0,1]", "[0,2]", 1))
	if got := string(c.next().D); !strings.Contains(got, `"guilds":[]`) || !strings.Contains(got, `"shard":[0,2]`) {
		t.Errorf("the default READY is %s", got)
	}
}

func TestKeepsWithinItsBounds(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{BufferBytes: 2000, KeepSessions: 3, KeepRecords: 4})
	for range 6 {
		c := dial(t, s)
		c.send(identify)
		c.next()
	}
	for range 100 {
		_, err := s.Send(0, "TYPING_START", []byte(`{"n":1234567890}`))
		ok(t, err)
	}
	ok(t, s.WaitReceived(within(t), 2, 4))
	sessions, bytes := map[string]bool{}, 0
	for _, d := range s.Sent() {
		sessions[d.Session] = true
		if d.Session == s.SessionID(0) {
			bytes += len(d.Data) + len(d.Type)
		}
	}
	if len(sessions) != 3 || bytes > 2000 || bytes < 500 {
		t.Errorf("keeps %d sessions, the last with %d bytes; want 3, and at most 2000", len(sessions), bytes)
	}
	if n := len(s.Identifies()); n != 4 {
		t.Errorf("keeps %d identifies, want 4", n)
	}
	if n := s.SentCount(); n != 106 {
		t.Errorf("counted %d dispatches, want 106", n)
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := s.WaitIdentifies(ctx, 1); !errors.Is(err, enough) {
		t.Errorf("Wait returned %v, want %v", err, enough)
	}
	ok(t, s.Close())
	if err := s.WaitIdentifies(t.Context(), 1); err == nil {
		t.Error("Wait on a closed server returned nil")
	}
}

func TestRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	base := strings.TrimSuffix(s.URL(), "/api/v10")
	for _, query := range []string{"", "?v=9&encoding=json", "?v=10&encoding=etf", "?v=10&encoding=json&compress=zstd-stream"} {
		_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(base, "http")+"/"+query, nil)
		if err == nil || resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("dial with %q: %v, want status 400", query, err)
		}
	}
}

// A collector is a shard's handler that keeps what it is given.
type collector struct {
	mu  sync.Mutex
	got []gateway.Dispatch
}

func (c *collector) Check(context.Context) error          { return nil }
func (c *collector) SessionEnded(context.Context, string) {}
func (c *collector) Sequence(received int64) int64        { return received }
func (c *collector) Dispatch(_ context.Context, d gateway.Dispatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, d)
	return nil
}

func (c *collector) all() []gateway.Dispatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[:len(c.got):len(c.got)]
}

// shards runs n shards and returns what they get.
func shards(t *testing.T, s *gatewaytest.Server, n int) []*collector {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	all := make([]*collector, n)
	for i := range n {
		all[i] = &collector{}
		shard, err := gateway.New(gateway.Config{
			Token: "token", URL: "ws" + strings.TrimPrefix(strings.TrimSuffix(s.URL(), "/api/v10"), "http"),
			Shard: i, Shards: n, Pacer: &gateway.LocalPacer{Interval: time.Millisecond},
			BackoffMin: time.Millisecond, InvalidSessionWait: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		}, all[i])
		ok(t, err)
		wg.Go(func() {
			if err := shard.Run(ctx, gateway.Session{}); err != nil {
				t.Errorf("shard %d: %v", i, err)
			}
		})
	}
	return all
}

// poll waits until cond holds.
func poll(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

var _ io.Writer = (*lines)(nil)

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}
