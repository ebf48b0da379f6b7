package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/corpus/seeds"
	"github.com/sluicehq/sluice/internal/wire"

	"github.com/sluicehq/sluice/internal/proctest"
)

// A session is a recording to play: recorded, or made up.
type session struct {
	name string
	open func() io.ReadCloser
	long bool // only with -full
}

func sessions() []session {
	all := []session{{"recorded", corpus.Session, true}, {"made up", madeUp(1, 3000), false}}
	for _, s := range seeds.Sessions {
		all = append(all, session{s.Name, s.Open, s.Name != "seed-7"})
	}
	return all
}

// madeUp makes a recording of n dispatches of all types.
func madeUp(seed uint64, n int) func() io.ReadCloser {
	return func() io.ReadCloser {
		source := cachemodel.NewSource(seed, cachemodel.Size{Guilds: 4, Channels: 3, Users: 6, Messages: 12})
		var lines bytes.Buffer
		for i := range n {
			name, payload := source.Next()
			fmt.Fprintf(&lines, "{\"t\":%q,\"s\":%d,\"op\":0,\"d\":%s}\n", name, i+1, payload)
		}
		return io.NopCloser(&lines)
	}
}

// TestCacheOfSessions plays sessions to the gateway program, kills it on the way,
// and holds the state of every entry, and the cache at the end, against the model.
func TestCacheOfSessions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		flags []string
		kills int
		long  bool
	}{
		{"plain", nil, 0, true},
		{"killed", nil, 10, false},
		{"1 MiB of memory", []string{"--cache.memory_bytes=1MiB"}, 0, true},
		{"1 MiB of memory, killed", []string{"--cache.memory_bytes=1MiB"}, 3, true},
	}
	for _, s := range sessions() {
		for _, test := range tests {
			if (s.long || test.long) && !*full {
				continue
			}
			t.Run(s.name+", "+test.name, func(t *testing.T) {
				t.Parallel()
				r := newRun(t, 1, append(test.flags, "--cache.messages_per_channel=1000000", "--forward.max_length=10000000")...)
				p := r.gateway(t)
				played := r.start(t, s.open, len(test.flags)+test.kills)
				for i := range test.kills {
					due := played.lines * (i + 1) / (test.kills + 2)
					proctest.Eventually(t, "it is time for a kill", func() bool { return r.discord.SentCount() >= due })
					p.Kill()
					p = r.gateway(t)
					// The dead one's ownership runs out: at once, for the test's sake.
					if err := r.rdb.Del(t.Context(), wire.NewShard(r.prefix, 0, 1).Owner()).Err(); err != nil {
						t.Fatal(err)
					}
					if err := r.discord.WaitResumes(t.Context(), i+1); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-played.done; err != nil {
					t.Fatalf("play: %v", err)
				}
				r.flowsOut(t)
				if code := p.Stop(t); code != 0 {
					t.Errorf("exit code %d, want 0", code)
				}
				r.likeModel(t)
			})
		}
	}
}

// A playing is a session that is being played.
type playing struct {
	lines int
	done  chan error
}

// start plays a session; one that is disturbed not faster than that it takes some
// seconds.
func (r *run) start(t *testing.T, open func() io.ReadCloser, disturbed int) playing {
	t.Helper()
	file := open()
	envelopes, err := corpus.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	rate := 0.0
	if disturbed > 0 {
		rate = max(float64(len(envelopes))/8, 150)
	}
	p := playing{len(envelopes), make(chan error, 1)}
	go func() { // ends with the session, or the test
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		file := open()
		defer file.Close()
		_, err := r.discord.Play(ctx, file, gatewaytest.PlayOptions{Rate: rate})
		p.done <- err
	}()
	return p
}

// flowsOut waits until everything that was sent is in the streams, for as long as
// they grow: a large session takes its time on a busy machine.
func (r *run) flowsOut(t *testing.T) {
	t.Helper()
	for {
		sent, before := r.discord.SentCount(), r.length(t)
		if before >= sent {
			return
		}
		proctest.Eventually(t, fmt.Sprintf("%d dispatches are sent, there are more entries than %d", sent, before), func() bool { return r.length(t) > before })
	}
}

// likeModel holds the streams and the cache against the model of what was sent.
func (r *run) likeModel(t *testing.T) {
	t.Helper()
	type told struct {
		sent  gatewaytest.Sent
		state cachemodel.State
		seen  bool
	}
	model := cachemodel.New()
	all := make(map[int64]*told)
	for _, s := range r.discord.Sent() {
		all[s.Sequence] = &told{sent: s, state: model.Apply(s.Type, s.Data)}
	}
	known, faults := 0, 0
	for _, e := range r.entries(t) {
		was := all[e.Sequence]
		if was == nil || was.seen || e.Event != was.sent.Type {
			t.Fatalf("entry %s is %s, sequence %d: not sent, or twice", e.id, e.Event, e.Sequence)
		}
		was.seen = true
		if len(e.State) > 0 {
			known++
		}
		want := tell(cachemodel.Canonical(string(was.state.Previous)), was.state.Partial, was.state.Sync)
		got := tell(cachemodel.Canonical(string(e.State)), e.Flags&wire.Partial != 0, e.Flags&wire.Sync != 0)
		if got != want {
			if faults++; faults <= 5 {
				t.Errorf("before %s, sequence %d, %.300s\n got %.2000s\nwant %.2000s", e.Event, e.Sequence, was.sent.Data, got, want)
			}
		}
	}
	for sequence, was := range all {
		if !was.seen {
			t.Errorf("%s, sequence %d, is in no stream", was.sent.Type, sequence)
		}
	}
	if faults > 5 || known == 0 {
		t.Errorf("%d states are wrong, %d entries have one", faults, known)
	}
	content, err := cachemodel.Read(t.Context(), r.rdb, wire.NewShard(r.prefix, 0, 1).Tag())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lasting(model.Content()), lasting(content)); diff != "" {
		t.Errorf("the cache (-want +got):\n%.6000s", diff)
	}
	t.Logf("%d dispatches, %d with a state, %d resumes", len(all), known, len(r.discord.Resumes()))
}

func tell(state string, partial, sync bool) string {
	return fmt.Sprintf("%s (partial %v, sync %v)", state, partial, sync)
}

// lasting is what does not go by itself: a voice state whose member has left is
// kept for a minute.
func lasting(c cachemodel.Content) cachemodel.Content {
	for key, fields := range c {
		for field := range fields {
			if strings.HasSuffix(field, ":left") {
				delete(fields, field)
			}
		}
		if len(fields) == 0 {
			delete(c, key)
		}
	}
	return c.Normal()
}
