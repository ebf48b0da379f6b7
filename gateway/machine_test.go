package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluicehq/sluice/gateway"
)

var session = gateway.Session{ID: "abc", ResumeURL: "wss://own.example", Sequence: 7}

// readyMachine has a session that stands, with sequence 7.
func readyMachine() *gateway.Machine {
	m := gateway.NewMachine(gateway.Session{})
	m.Dialed()
	m.Hello()
	m.Introduced()
	m.Ready(session)
	return m
}

func TestCloseCodes(t *testing.T) {
	t.Parallel()
	want := map[int]string{
		1000: "identify", 1001: "resume",
		4000: "resume", 4001: "resume", 4002: "resume", 4003: "identify", 4004: "fatal", 4005: "resume",
		4006: "identify", 4007: "identify", 4008: "resume", 4009: "identify",
		4010: "fatal", 4011: "fatal", 4012: "fatal", 4013: "fatal", 4014: "fatal",
	}
	if diff := cmp.Diff(want, gateway.CloseRules()); diff != "" {
		t.Fatalf("the table (-want +got):\n%s", diff)
	}
	want[0], want[1006], want[1011], want[4999] = "resume", "resume", "resume", "resume" // not in the table
	for code, verdict := range want {
		m := readyMachine()
		o := m.Closed(code)
		if m.Phase() != "offline" {
			t.Errorf("after %d: phase %s, want offline", code, m.Phase())
		}
		if o.Code != 0 {
			t.Errorf("after %d: closes with %d what is closed", code, o.Code)
		}
		switch verdict {
		case "resume":
			if o.Do != "leave" || o.Ended != "" || m.Session() != session || m.Target() != session.ResumeURL {
				t.Errorf("after %d: %+v, session %+v, target %s; want a resume", code, o, m.Session(), m.Target())
			}
		case "identify":
			if o.Do != "leave" || o.Ended == "" || m.Session() != (gateway.Session{}) || m.Target() != gateway.PlainURL {
				t.Errorf("after %d: %+v, session %+v, target %s; want an identify", code, o, m.Session(), m.Target())
			}
		case "fatal":
			var fatal *gateway.FatalError
			if o.Do != "end" || !errors.As(o.Err, &fatal) || fatal.Code != code || fatal.Advice == "" {
				t.Errorf("after %d: %+v, want a *FatalError with advice", code, o)
			}
		}
	}
}

func TestFatalErrorNamesThePrivilegedIntents(t *testing.T) {
	t.Parallel()
	text := readyMachine().Closed(4014).Err.Error()
	for _, want := range []string{"4014", "developer portal", "GUILD_MEMBERS, MESSAGE_CONTENT"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
	if strings.Contains(text, "PRESENCES") {
		t.Errorf("%q names an intent that was not asked for", text)
	}
}

// TestInEachPhase has op 7, op 9 and a lost connection in every phase, with and
// without a session.
func TestInEachPhase(t *testing.T) {
	t.Parallel()
	phases := []struct {
		name string
		to   func(m *gateway.Machine)
	}{
		{"connected", func(m *gateway.Machine) { m.Dialed() }},
		{"greeted", func(m *gateway.Machine) { m.Dialed(); m.Hello() }},
		{"asked", func(m *gateway.Machine) { m.Dialed(); m.Hello(); m.Introduced() }},
		{"ready", func(m *gateway.Machine) {
			m.Dialed()
			m.Hello()
			m.Introduced()
			m.Dispatched("RESUMED", 8)
		}},
	}
	const invalid = "Discord declared the session invalid"
	happenings := []struct {
		name    string
		do      func(m *gateway.Machine) gateway.Outcome
		with    gateway.Outcome // with a session
		without gateway.Outcome
		keeps   bool
	}{
		{"op 7", (*gateway.Machine).ReconnectAsked,
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "reconnect"},
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "reconnect"}, true},
		{"op 9 true", func(m *gateway.Machine) gateway.Outcome { return m.Invalidated(true) },
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "invalid"},
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "invalid", Refused: true}, true},
		{"op 9 false", func(m *gateway.Machine) gateway.Outcome { return m.Invalidated(false) },
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "invalid", Refused: true, Ended: invalid},
			gateway.Outcome{Do: "leave", Code: 4000, Cause: "invalid", Refused: true}, false},
		{"lost", func(m *gateway.Machine) gateway.Outcome { return m.Closed(0) },
			gateway.Outcome{Do: "leave", Cause: "connection lost"},
			gateway.Outcome{Do: "leave", Cause: "connection lost"}, true},
	}
	for _, p := range phases {
		for _, h := range happenings {
			for _, start := range []gateway.Session{session, {}} {
				m := gateway.NewMachine(start)
				p.to(m)
				want := h.without
				if start.ID != "" {
					want = h.with
				}
				if diff := cmp.Diff(want, h.do(m)); diff != "" {
					t.Errorf("%s while %s, session %q (-want +got):\n%s", h.name, p.name, start.ID, diff)
				}
				if kept := m.Session().ID != ""; kept != (h.keeps && start.ID != "") {
					t.Errorf("%s while %s: session kept: %v", h.name, p.name, kept)
				}
				if again := m.ReconnectAsked(); again.Do != "" {
					t.Errorf("%s while %s: a second %+v on a connection that was left", h.name, p.name, again)
				}
			}
		}
	}
}

func TestSequence(t *testing.T) {
	t.Parallel()
	m := readyMachine()
	for _, s := range []int64{8, 9, 12, 12, 13, 11, 0} { // gaps, repeats, going back, none
		m.Dispatched("TYPING_START", s)
	}
	m.Acked()
	m.BeatRequested()
	if got := m.Session().Sequence; got != 13 {
		t.Errorf("sequence %d, want 13", got)
	}
	m.Invalidated(false)
	m.Dialed()
	m.Hello()
	m.Dispatched("TYPING_START", 99) // before READY: of no session
	if got := m.Session(); got != (gateway.Session{}) {
		t.Errorf("session %+v before READY, want none", got)
	}
	m.Ready(gateway.Session{ID: "new", Sequence: 1})
	if got := m.Session(); got.Sequence != 1 || m.Target() != gateway.PlainURL {
		t.Errorf("session %+v, target %s: want sequence 1, and the plain address where READY has none", got, m.Target())
	}
}

func TestResumeURLFallback(t *testing.T) {
	t.Parallel()
	m := gateway.NewMachine(session)
	if got := m.Target(); got != session.ResumeURL {
		t.Fatalf("target %s, want the session's own", got)
	}
	if o := m.DialFailed(); o.Do != "redial" || m.Target() != gateway.PlainURL {
		t.Fatalf("%+v to %s, want a redial of the plain address", o, m.Target())
	}
	if o := m.DialFailed(); o.Do != "leave" || m.Target() != session.ResumeURL || m.Failures() != 1 {
		t.Fatalf("%+v, then %s after %d failures: want to wait and try the session's own again", o, m.Target(), m.Failures())
	}
	m.DialFailed()
	m.Dialed()
	if m.Session().ID != session.ID || m.Target() != gateway.PlainURL {
		t.Errorf("session %+v, target %s: want the session, without the dead address", m.Session(), m.Target())
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	beat, zombie := gateway.Outcome{Do: "beat"}, gateway.Outcome{Do: "leave", Code: 4000, Cause: "zombie"}
	tests := []struct {
		name  string
		drive func(m *gateway.Machine) gateway.Outcome
		want  gateway.Outcome
	}{
		{"the first", func(m *gateway.Machine) gateway.Outcome { return m.Tick(false, false) }, beat},
		{"acked", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			m.Acked()
			return m.Tick(false, false)
		}, beat},
		{"not acked, something else came", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			return m.Tick(true, false)
		}, beat},
		{"not acked, nothing came", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			return m.Tick(false, false)
		}, gateway.Outcome{Do: "doubt"}},
		{"not acked, nothing came then either", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			m.Tick(false, false)
			return m.Tick(false, false)
		}, zombie},
		{"not acked, something came then", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			m.Tick(false, false)
			return m.Tick(true, false)
		}, beat},
		{"acked when asked again, then not", func(m *gateway.Machine) gateway.Outcome {
			m.Tick(true, false)
			m.Tick(false, false)
			m.Acked()
			m.Tick(true, false)
			return m.Tick(false, false)
		}, gateway.Outcome{Do: "doubt"}},
		{"asked for", (*gateway.Machine).BeatRequested, beat},
		{"asked for, never acked", func(m *gateway.Machine) gateway.Outcome {
			m.BeatRequested()
			m.Tick(false, false)
			return m.Tick(false, false)
		}, zombie},
	}
	for _, tt := range tests {
		for _, start := range []func() *gateway.Machine{readyMachine, func() *gateway.Machine {
			m := gateway.NewMachine(gateway.Session{})
			m.Dialed()
			m.Hello()
			return m
		}} {
			m := start()
			phase := m.Phase()
			if diff := cmp.Diff(tt.want, tt.drive(m)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, phase, diff)
			}
		}
	}
}

func TestSilenceAfterIdentify(t *testing.T) {
	t.Parallel()
	m := gateway.NewMachine(session)
	m.Dialed()
	m.Hello()
	m.Now = m.Now.Add(time.Hour)
	if o := m.Tick(true, false); o.Do != "beat" {
		t.Fatalf("%+v while the pacer holds it back, want a beat", o)
	}
	m.Introduced()
	m.Now = m.Now.Add(50 * time.Second)
	m.Dispatched("MESSAGE_CREATE", 8) // replayed
	m.Now = m.Now.Add(50 * time.Second)
	if o := m.Tick(true, false); o.Do != "beat" {
		t.Fatalf("%+v within the timeout, want a beat", o)
	}
	m.Now = m.Now.Add(20 * time.Second)
	if o := m.Tick(true, true); o.Do != "beat" {
		t.Fatalf("%+v while the handler blocks, want a beat", o)
	}
	want := gateway.Outcome{Do: "leave", Code: 4000, Cause: "silent"}
	if diff := cmp.Diff(want, m.Tick(true, false)); diff != "" {
		t.Errorf("after the timeout (-want +got):\n%s", diff)
	}
	if m.Session().Sequence != 8 {
		t.Errorf("session %+v, want it kept", m.Session())
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	m := readyMachine()
	for try := 1; try <= 2; try++ {
		if diff := cmp.Diff(gateway.Outcome{Do: "leave", Code: 4000, Cause: "malformed"}, m.Unreadable()); diff != "" {
			t.Fatalf("try %d (-want +got):\n%s", try, diff)
		}
		m.Dialed()
		m.Hello()
	}
	if o := m.Unreadable(); o.Do != "step over" {
		t.Fatalf("third time: %+v, want to step over", o)
	}
	m.Dispatched("TYPING_START", 9)
	if o := m.Unreadable(); o.Do != "leave" {
		t.Errorf("after another sequence: %+v, want to ask for it again", o)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	m := readyMachine()
	m.Closed(0)
	if m.Failures() != 1 {
		t.Errorf("%d failures after a connection that brought READY only, want 1", m.Failures())
	}
	m.Dialed()
	m.Hello()
	m.Dispatched("RESUMED", 8)
	m.Dispatched("TYPING_START", 9)
	m.Closed(4000)
	if m.Failures() != 0 {
		t.Errorf("%d failures after one that served, want 0", m.Failures())
	}
	for range 3 {
		m.Dialed()
		m.ReconnectAsked()
	}
	if m.Failures() != 3 {
		t.Errorf("%d failures after three op 7 before hello, want 3", m.Failures())
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := []struct {
		failures int
		chance   float64
		want     time.Duration
	}{
		{0, 0.5, 0}, {1, 0, s}, {1, 0.5, 750 * time.Millisecond}, {2, 0, 2 * s}, {4, 0, 8 * s},
		{7, 0, 60 * s}, {7, 0.5, 45 * s}, {1000, 0, 60 * s},
	}
	for _, tt := range tests {
		if got := gateway.Backoff(tt.failures, s, time.Minute, tt.chance); got != tt.want {
			t.Errorf("Backoff(%d, %v) = %v, want %v", tt.failures, tt.chance, got, tt.want)
		}
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	var b gateway.Budget
	now := time.Unix(1_900_000_000, 0)
	for i := range 115 {
		if wait := b.Take(now.Add(time.Duration(i)*time.Millisecond), false); wait != 0 {
			t.Fatalf("message %d waits %v", i, wait)
		}
	}
	now = now.Add(time.Second)
	if wait := b.Take(now, false); wait != 59*time.Second {
		t.Errorf("message 116 waits %v, want 59s: the last places are the heartbeats'", wait)
	}
	for i := range 5 {
		if wait := b.Take(now, true); wait != 0 {
			t.Errorf("heartbeat %d waits %v", i, wait)
		}
	}
	if wait := b.Take(now, true); wait != 59*time.Second {
		t.Errorf("message 121 waits %v, want 59s", wait)
	}
	if wait := b.Take(now.Add(59*time.Second), true); wait != 0 {
		t.Errorf("a minute later it waits %v", wait)
	}
}

func TestLocalPacer(t *testing.T) {
	t.Parallel()
	p := gateway.LocalPacer{Interval: 5 * time.Second}
	now := time.Unix(1_900_000_000, 0)
	var got []time.Duration
	for _, take := range []struct {
		bucket int
		after  time.Duration
	}{{0, 0}, {0, 0}, {1, 0}, {0, time.Second}, {1, 7 * time.Second}} {
		got = append(got, p.Take(take.bucket, now.Add(take.after)))
	}
	want := []time.Duration{0, 5 * time.Second, 0, 9 * time.Second, 0}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}
