package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

// none is no session: identify.
var none gateway.Session

func TestDispatchesArriveAsSent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		compress string
		split    int
	}{{gateway.CompressNone, 0}, {gateway.CompressZlibStream, 0}, {gateway.CompressZlibStream, 1000}} {
		t.Run(fmt.Sprint(tt.compress, tt.split), func(t *testing.T) {
			t.Parallel()
			s, h := start(t, gatewaytest.Config{SplitBytes: tt.split}), &recorder{}
			r := connect(t, s, h, none, func(c *gateway.Config) {
				c.Compress = tt.compress
				c.Presence = json.RawMessage(`{"status":"idle","activities":[],"afk":false,"since":null}`)
				c.LargeThreshold = 100
			})
			ready := h.count(t, 1)[0]
			if ready.Type != "READY" || ready.SessionID == "" || ready.SessionID != s.SessionID(0) {
				t.Fatalf("first dispatch is %s of session %q, want READY of %q", ready.Type, ready.SessionID, s.SessionID(0))
			}
			for _, d := range []string{`{}`, `null`, `[]`, `"\ud83d\udd25 ` + "\u2028" + `"`, string(dispatchOf(2400))} {
				_, err := s.Send(0, "MESSAGE_CREATE", []byte(d))
				ok(t, err)
			}
			_, err := s.Send(0, "A_NEW_THING", nil)
			ok(t, err)
			large := dispatchOf(700_000)
			_, err = s.Send(0, "GUILD_CREATE", large)
			ok(t, err)
			send(t, s, 0, 0, 3000)
			got := h.count(t, s.SentCount())
			same(t, s, got)
			if d := got[6]; d.Type != "A_NEW_THING" || d.Data != nil {
				t.Errorf("a dispatch without d has type %s, data %q, want nil", d.Type, d.Data)
			}
			for _, d := range got {
				if cap(d.Data) != len(d.Data) {
					t.Fatalf("%s has %d bytes in a buffer of %d", d.Type, len(d.Data), cap(d.Data))
				}
			}
			if age := time.Since(time.UnixMilli(got[0].Received)); age < 0 || age > time.Minute {
				t.Errorf("READY was received %v ago", age)
			}
			if st := r.Status(); !st.Connected || st.Phase != "ready" {
				t.Errorf("status %+v, want ready", st)
			}
			id := s.Identifies()[0]
			if id.Intents != 1<<9|1<<15 || id.Shard != 0 || id.Shards != 1 {
				t.Errorf("identified with %+v", id)
			}
			for _, want := range []string{`"presence":{"status":"idle"`, `"large_threshold":100`, `"os":`, `"token":"token"`} {
				if !strings.Contains(string(id.Data), want) {
					t.Errorf("IDENTIFY lacks %s: %s", want, id.Data)
				}
			}
		})
	}
}

func TestOddSequences(t *testing.T) {
	t.Parallel()
	s, h := start(t, gatewaytest.Config{}), &recorder{}
	r := connect(t, s, h, none, nil)
	h.count(t, 1)
	for i, sequence := range []string{`"s":2,`, `"s":5,`, `"s":5,`, `"s":4,`, `"s":null,`, ``, `"s":9,`} {
		_, err := s.SendRaw(0, fmt.Appendf(nil, `{"op":0,%s"t":"TYPING_START","d":%d}`, sequence, i))
		ok(t, err)
	}
	var got []string
	for _, d := range h.count(t, 8)[1:] {
		got = append(got, fmt.Sprintf("%d:%s", d.Sequence, d.Data))
	}
	if want := "2:0 5:1 5:2 4:3 0:4 0:5 9:6"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q: all of them, as they came", strings.Join(got, " "), want)
	}
	poll(t, "sequence 9", func() bool { return r.Status().Sequence == 9 })
}

func TestNothingLostOverBreaks(t *testing.T) {
	t.Parallel()
	breaks := map[string]func(s *gatewaytest.Server) error{
		"dropped":   func(s *gatewaytest.Server) error { s.DropConnections(); return nil },
		"op 7":      func(s *gatewaytest.Server) error { return s.Reconnect(0) },
		"op 9 true": func(s *gatewaytest.Server) error { return s.Invalidate(0, true) },
		"4000":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 4000) },
		"4001":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 4001) },
		"4002":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 4002) },
		"4005":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 4005) },
		"4008":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 4008) },
		"1001":      func(s *gatewaytest.Server) error { return s.CloseShard(0, 1001) },
		"garbage":   func(s *gatewaytest.Server) error { return s.Interject(0, []byte(`{"op":0,"s":5,"t":"X`)) },
	}
	for name, do := range breaks {
		for _, compress := range []string{gateway.CompressNone, gateway.CompressZlibStream} {
			t.Run(name+" "+compress, func(t *testing.T) {
				t.Parallel()
				s, h := start(t, gatewaytest.Config{}), &recorder{}
				connect(t, s, h, none, func(c *gateway.Config) { c.Compress = compress })
				h.count(t, 1)
				for round := range 5 {
					send(t, s, 0, round*1000, 300)
					ok(t, do(s))
					send(t, s, 0, round*1000+500, 50) // some of them while nobody is there
					ok(t, s.WaitResumes(within(t), round+1))
					ok(t, s.WaitConnected(within(t), 0))
				}
				send(t, s, 0, 9000, 10)
				_, err := s.Send(0, "MESSAGE_DELETE", []byte(`{}`))
				ok(t, err)
				same(t, s, h.last(t, "MESSAGE_DELETE"))
				if n := len(s.Identifies()); n != 1 {
					t.Errorf("%d identifies, want 1", n)
				}
				for _, r := range s.Resumes() {
					if r.Path != "/resume" || !r.OK {
						t.Errorf("resume %+v, want one at the session's own address", r)
					}
				}
				for _, c := range s.Closes() {
					if c.Code == 1000 || c.Code == 1001 {
						t.Errorf("the shard closed with %d, which ends the session", c.Code)
					}
				}
			})
		}
	}
}

// TestResumesAreCounted by what became of them.
func TestResumesAreCounted(t *testing.T) {
	t.Parallel()
	s, h, reg := start(t, gatewaytest.Config{}), &recorder{}, prometheus.NewRegistry()
	connect(t, s, h, none, func(c *gateway.Config) { c.Metrics = reg })
	h.count(t, 1)
	for n := range 3 {
		s.DropConnections()
		h.until(t, "RESUMED", func() bool {
			resumed := 0
			for _, d := range h.got {
				if d.Type == "RESUMED" {
					resumed++
				}
			}
			return resumed == n+1
		})
	}
	ok(t, s.EndSession(0))
	s.DropConnections()
	ok(t, s.WaitIdentifies(within(t), 2))
	h.last(t, "READY")
	got := map[string]float64{}
	families, err := reg.Gather()
	ok(t, err)
	for _, f := range families {
		if f.GetName() != "sluice_gateway_resume_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if got["resumed"] != 3 || got["refused"] != 1 || len(got) != 3 {
		t.Errorf("counted %v, want 3 resumed and 1 refused", got)
	}
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(s *gatewaytest.Server) error{
		"op 9 false": func(s *gatewaytest.Server) error { return s.Invalidate(0, false) },
		"4003":       func(s *gatewaytest.Server) error { return s.CloseShard(0, 4003) },
		"4006":       func(s *gatewaytest.Server) error { return s.CloseShard(0, 4006) },
		"4007":       func(s *gatewaytest.Server) error { return s.CloseShard(0, 4007) },
		"4009":       func(s *gatewaytest.Server) error { return s.CloseShard(0, 4009) },
		"1000":       func(s *gatewaytest.Server) error { return s.CloseShard(0, 1000) },
		"timed out, found at the resume": func(s *gatewaytest.Server) error {
			err := s.EndSession(0)
			s.DropConnections()
			return err
		},
	}
	for name, do := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := start(t, gatewaytest.Config{}), &recorder{}
			connect(t, s, h, none, nil)
			h.count(t, 1)
			send(t, s, 0, 0, 10)
			h.count(t, 11)
			ok(t, do(s))
			ok(t, s.WaitIdentifies(within(t), 2))
			ok(t, s.WaitConnected(within(t), 0))
			send(t, s, 0, 10, 10)
			got := h.count(t, 22)
			same(t, s, got)
			if got[11].Type != "READY" || got[11].Sequence != 1 || got[11].SessionID == got[10].SessionID {
				t.Errorf("after the end came %s %d, want READY 1 of another session", got[11].Type, got[11].Sequence)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.ended) != 1 || h.ended[0] == "" {
				t.Errorf("told of ended sessions: %q, want one", h.ended)
			}
		})
	}
}

func TestResumesAGivenSession(t *testing.T) {
	t.Parallel()
	s, h := start(t, gatewaytest.Config{}), &recorder{}
	first := connect(t, s, h, none, nil)
	h.count(t, 1)
	send(t, s, 0, 0, 20)
	got := h.count(t, 21)
	ok(t, first.stop())
	send(t, s, 0, 20, 20)
	second := &recorder{}
	var ready struct {
		URL string `json:"resume_gateway_url"`
	}
	ok(t, json.Unmarshal(got[0].Data, &ready))
	connect(t, s, second, gateway.Session{ID: got[0].SessionID, ResumeURL: ready.URL, Sequence: 11}, nil)
	replayed := second.last(t, "RESUMED")
	same(t, s, append(got[:11:11], replayed...))
	if n := len(s.Identifies()); n != 1 {
		t.Errorf("%d identifies, want 1", n)
	}
}

func TestZombie(t *testing.T) {
	t.Parallel()
	s, h := start(t, gatewaytest.Config{HeartbeatInterval: 250 * time.Millisecond}), &recorder{}
	connect(t, s, h, none, nil)
	h.count(t, 1)
	ok(t, s.WaitReceived(within(t), 1, 3))
	if n := len(s.Closes()); n != 0 {
		t.Fatalf("%d connections ended while heartbeats were acked", n)
	}
	s.WithholdAcks(true)
	ok(t, s.WaitCloses(within(t), 1))
	s.WithholdAcks(false)
	if code := s.Closes()[0].Code; code != 4000 {
		t.Errorf("the zombie was closed with %d, want 4000", code)
	}
	ok(t, s.WaitResumes(within(t), 1))
	send(t, s, 0, 0, 5)
	same(t, s, h.count(t, s.SentCount()))
}

func TestAnythingReceivedIsLife(t *testing.T) {
	t.Parallel()
	const interval = 250 * time.Millisecond
	s, h := start(t, gatewaytest.Config{HeartbeatInterval: interval}), &recorder{}
	connect(t, s, h, none, nil)
	h.count(t, 1)
	s.WithholdAcks(true)
	end := time.Now().Add(5 * interval)
	for i := 0; time.Now().Before(end); i++ {
		send(t, s, 0, i, 1)
		h.count(t, i+2)
		time.Sleep(interval / 50)
	}
	if n := len(s.Closes()); n != 0 {
		t.Errorf("%d connections ended although dispatches came", n)
	}
}

func TestBlockedHandlerKeepsTheConnection(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{HeartbeatInterval: 200 * time.Millisecond})
	release := make(chan struct{})
	h := &recorder{onDispatch: func(ctx context.Context, d gateway.Dispatch) error {
		if d.Type == "MESSAGE_CREATE" {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}}
	r := connect(t, s, h, none, nil)
	h.count(t, 1)
	_, err := s.Send(0, "MESSAGE_CREATE", []byte(`{}`))
	ok(t, err)
	send(t, s, 0, 0, 2000)
	poll(t, "the handler blocks", func() bool { return r.Status().Blocked })
	beats := 0
	for _, m := range s.Received() {
		if m.Op == 1 {
			beats++
		}
	}
	ok(t, s.WaitReceived(within(t), 1, beats+5))
	close(release)
	same(t, s, h.count(t, s.SentCount()))
	ok(t, s.WaitReceived(within(t), 1, beats+7))
	if n := len(s.Closes()); n != 0 {
		t.Errorf("%d connections ended", n)
	}
}

func TestHeartbeatsCarryTheHandlersSequence(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{HeartbeatInterval: time.Hour})
	h := &recorder{sequence: func(received int64) int64 { return max(0, received-2) }}
	connect(t, s, h, none, nil)
	h.count(t, 1)
	ok(t, s.RequestHeartbeat(0))
	ok(t, s.WaitReceived(within(t), 1, 1))
	send(t, s, 0, 0, 4)
	ok(t, s.RequestHeartbeat(0))
	ok(t, s.WaitReceived(within(t), 1, 2))
	var got []string
	for _, m := range s.Received() {
		if m.Op == 1 {
			got = append(got, string(m.Data))
		}
	}
	if strings.Join(got, " ") != "null 3" {
		t.Errorf("heartbeats carried %q, want null, then 3 (5 less 2)", got)
	}
}

func TestHeartbeatBeforeReady(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{
		HeartbeatInterval: 100 * time.Millisecond,
		Ready:             gatewaytest.Withhold,
	})
	h := &recorder{}
	r := connect(t, s, h, none, func(c *gateway.Config) { c.ReadyTimeout = 2 * time.Second })
	ok(t, s.WaitReceived(within(t), 1, 5))
	if st := r.Status(); st.Connected || st.Phase != "greeted" {
		t.Errorf("status %+v, want greeted", st)
	}
	ok(t, s.WaitCloses(within(t), 1))
	s.SetReady(nil)
	h.count(t, 1)
	if c := s.Closes()[0]; c.Code != 4000 {
		t.Errorf("the silent connection was closed with %d, want 4000", c.Code)
	}
}

func TestFirstMessages(t *testing.T) {
	t.Parallel()
	// Op 7 and op 9 where READY is awaited have deadlocked other libraries.
	for name, do := range map[string]func(s *gatewaytest.Server) error{
		"op 7":       func(s *gatewaytest.Server) error { return s.Reconnect(0) },
		"op 9 true":  func(s *gatewaytest.Server) error { return s.Invalidate(0, true) },
		"op 9 false": func(s *gatewaytest.Server) error { return s.Invalidate(0, false) },
		"op 11":      func(s *gatewaytest.Server) error { s.DropConnections(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, gatewaytest.Config{Ready: gatewaytest.Withhold})
			h := &recorder{}
			connect(t, s, h, none, nil)
			ok(t, s.WaitConnected(within(t), 0))
			ok(t, s.Interject(0, []byte(`{"op":11,"d":null}`)))
			ok(t, do(s))
			ok(t, s.WaitCloses(within(t), 1))
			s.SetReady(nil)
			if got := h.count(t, 1); got[0].Type != "READY" {
				t.Errorf("got %s, want READY", got[0].Type)
			}
		})
	}
}

func TestDeadResumeURL(t *testing.T) {
	t.Parallel()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	dead.Close() // refuses from now on
	s := start(t, gatewaytest.Config{ResumeURL: "ws://" + dead.Addr().String()})
	h := &recorder{}
	connect(t, s, h, none, nil)
	h.count(t, 1)
	for n := range 2 {
		s.DropConnections()
		ok(t, s.WaitResumes(within(t), n+1))
		h.last(t, "RESUMED")
		if r := s.Resumes()[n]; !r.OK || r.Path != "/" {
			t.Errorf("resume %+v, want one at the plain address", r)
		}
	}
	same(t, s, h.count(t, s.SentCount()))
}

func TestFatalCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int{4004, 4010, 4011, 4012, 4013, 4014} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			s, h := start(t, gatewaytest.Config{}), &recorder{}
			r := connect(t, s, h, none, nil)
			h.count(t, 1)
			ok(t, s.CloseShard(0, code))
			var fatal *gateway.FatalError
			if err := <-r.done; !errors.As(err, &fatal) || fatal.Code != code {
				t.Errorf("Run returned %v, want a *FatalError with %d", err, code)
			}
		})
	}
	t.Run("a wrong token", func(t *testing.T) {
		t.Parallel()
		s := start(t, gatewaytest.Config{Token: "token"})
		r := connect(t, s, &recorder{}, none, func(c *gateway.Config) { c.Token = "Bot secret-one" })
		var fatal *gateway.FatalError
		err := <-r.done
		if !errors.As(err, &fatal) || fatal.Code != 4004 {
			t.Fatalf("Run returned %v, want a *FatalError with 4004", err)
		}
		if strings.Contains(err.Error(), "secret-one") {
			t.Errorf("%q shows the token", err)
		}
	})
}

func TestUnreadableMessageIsSteppedOver(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	var logMu sync.Mutex
	reg := prometheus.NewRegistry()
	s, h := start(t, gatewaytest.Config{}), &recorder{}
	connect(t, s, h, none, func(c *gateway.Config) {
		c.Metrics = reg
		c.Logger = slog.New(slog.NewTextHandler(&lockedWriter{mu: &logMu, w: &logged}, nil))
	})
	h.count(t, 1)
	send(t, s, 0, 0, 3)
	_, err := s.SendRaw(0, []byte(`{"t":"MESSAGE_CREATE","s":5,"op":0,"d":{"content":"private}`))
	ok(t, err)
	send(t, s, 0, 3, 3)
	_, err = s.Send(0, "MESSAGE_DELETE", []byte(`{}`))
	ok(t, err)
	got := h.count(t, 10) // READY, 3, the bad one's place is empty, 3, MESSAGE_DELETE, 2 RESUMED
	var seqs []int64
	for _, d := range got {
		seqs = append(seqs, d.Sequence)
	}
	if fmt.Sprint(seqs) != "[1 2 3 4 6 7 8 9 10 11]" {
		t.Errorf("sequences %v, want all but 5, each once", seqs)
	}
	if n := len(s.Resumes()); n != 2 {
		t.Errorf("%d resumes, want 2: it is received three times", n)
	}
	if n := metric(t, reg, "sluice_gateway_malformed_total"); n != 1 {
		t.Errorf("counted %v messages stepped over, want 1", n)
	}
	logMu.Lock()
	defer logMu.Unlock()
	for _, secret := range []string{"private", "token=", s.SessionID(0)} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("the log shows %q:\n%s", secret, logged.String())
		}
	}
	if n := strings.Count(logged.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log, want 1:\n%s", n, logged.String())
	}
}

func TestTooLargeMessageIsSteppedOver(t *testing.T) {
	t.Parallel()
	for _, compress := range []string{gateway.CompressNone, gateway.CompressZlibStream} {
		t.Run(compress, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			s, h := start(t, gatewaytest.Config{}), &recorder{}
			connect(t, s, h, none, func(c *gateway.Config) {
				c.Compress, c.MaxFrameBytes, c.Metrics = compress, 100_000, reg
			})
			h.count(t, 1)
			for _, size := range []int{90_000, 300_000, 90_000} {
				_, err := s.Send(0, "GUILD_CREATE", dispatchOf(size))
				ok(t, err)
			}
			got := h.count(t, 3)
			if got[1].Sequence != 2 || got[2].Sequence != 4 {
				t.Errorf("got %d and %d, want 2 and 4", got[1].Sequence, got[2].Sequence)
			}
			if n := metric(t, reg, "sluice_gateway_too_large_total"); n != 1 {
				t.Errorf("counted %v, want 1", n)
			}
			if n := len(s.Closes()); n != 0 {
				t.Errorf("%d connections ended", n)
			}
		})
	}
}

func TestShardsShareAPacer(t *testing.T) {
	t.Parallel()
	const interval = 150 * time.Millisecond
	s := start(t, gatewaytest.Config{Shards: 4, MaxConcurrency: 2, IdentifyInterval: interval})
	pacer := &gateway.LocalPacer{Interval: 3 * interval}
	reg := prometheus.NewRegistry()
	for i := range 4 {
		connect(t, s, &recorder{}, none, func(c *gateway.Config) {
			c.Shard, c.Shards, c.MaxConcurrency, c.Pacer, c.Metrics = i, 4, 2, pacer, reg
		})
	}
	ok(t, s.WaitConnected(within(t), 0, 1, 2, 3))
	for _, id := range s.Identifies() {
		if id.Session == "" {
			t.Errorf("shard %d identified too early", id.Shard)
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	ok(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
