package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"

	"github.com/sluicehq/sluice/internal/proctest"
)

// recordedDispatches is the length of the recorded session, READY included.
const recordedDispatches = 2106

// recordedStates is the number of dispatches in it before which something was known.
const recordedStates = 875

// TestRecordedSession plays the recorded session to the gateway program and
// compares every entry with what Discord sent.
func TestRecordedSession(t *testing.T) {
	tests := []struct {
		name   string
		shards int
		flags  []string
	}{
		{"plain", 1, nil},
		{"1 MiB of memory", 1, []string{"--cache.memory_bytes=1MiB"}},
		{"msgpack", 1, []string{"--forward.codec", "msgpack"}},
		{"uncompressed", 1, []string{"--discord.compress=none"}},
		{"4 shards", 4, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, test.shards, test.flags...)
			gateway := r.gateway(t)
			r.play(t, 0, 0, nil)
			want := recordedDispatches + test.shards - 1
			proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= want })
			if code := gateway.Stop(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			r.compare(t, r.discord.Sent())
			if n := len(r.discord.Identifies()); n != test.shards {
				t.Errorf("%d identifies, want %d", n, test.shards)
			}
			for _, c := range r.discord.Closes() {
				if c.Code != 4000 {
					t.Errorf("closed with %d, want 4000: the session must stay resumable", c.Code)
				}
			}
		})
	}
}

// TestKilledGateway kills the gateway in the middle of the session and starts it
// again.
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1)
	first := r.gateway(t)
	r.play(t, 700, recordedDispatches/2, func() {
		first.Kill()
		r.gateway(t)
	})
	want := recordedDispatches + 1 // and RESUMED
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= want })
	r.compare(t, r.discord.Sent())
	if identifies, resumes := len(r.discord.Identifies()), len(r.discord.Resumes()); identifies != 1 || resumes != 1 {
		t.Errorf("%d identifies and %d resumes, want 1 and 1", identifies, resumes)
	}
}

// TestSimulator plays the session from the simulator program, kills the gateway
// in the middle, and compares with what the simulator has recorded.
func TestSimulator(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1)
	record := filepath.Join(t.TempDir(), "sent.jsonl")
	addr := freeAddr(t)
	sim := start(t, "sluice", "sim", "--addr", addr, "--rate", "1000", "--record", record)
	proctest.Eventually(t, "the simulator listens", func() bool { return strings.Contains(sim.Output.String(), "http://"+addr) })
	flags := append([]string{"--discord.api_url=http://" + addr + "/api/v10"}, r.flags...)
	first := start(t, "gateway", flags...)
	proctest.Eventually(t, "half of the session is in the streams", func() bool { return r.length(t) > recordedDispatches/2 })
	first.Kill()
	second := start(t, "gateway", flags...)
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= recordedDispatches+1 })
	if code := second.Stop(t); code != 0 {
		t.Errorf("gateway: exit code %d, want 0", code)
	}
	if code := sim.Stop(t); code != 0 {
		t.Errorf("sim: exit code %d, want 0", code)
	}
	file, err := os.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var sent []gatewaytest.Sent
	for d := json.NewDecoder(file); ; {
		var line struct {
			Shard   int
			Session string
			S       int64
			T       string
			D       json.RawMessage
		}
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, gatewaytest.Sent{Shard: line.Shard, Session: line.Session, Sequence: line.S, Type: line.T, Data: line.D})
	}
	r.compare(t, sent)
	if !regexp.MustCompile(`identifies: +1\n`).MatchString(sim.Output.String()) || !regexp.MustCompile(`resumes: +1 `).MatchString(sim.Output.String()) {
		t.Errorf("the simulator says:\n%s\nwant 1 identify and 1 resume", sim.Output.String())
	}
}

// compare holds the streams against what Discord sent: each dispatch exactly
// once, in order, with its fields, its payload and the state before it.
func (r *run) compare(t *testing.T, dispatches []gatewaytest.Sent) {
	t.Helper()
	type place struct {
		session  string
		sequence int64
	}
	sent := make(map[place]gatewaytest.Sent)
	want := expected(t)
	states := make(map[place]json.RawMessage)
	for _, s := range dispatches {
		p := place{wire.ShortSession(s.Session), s.Sequence}
		sent[p] = s
		if list := want[s.Type+string(s.Data)]; len(list) > 0 {
			states[p] = list[0]
			want[s.Type+string(s.Data)] = list[1:]
		}
	}
	seen := make(map[place]bool)
	last := make(map[string]int64)
	known := 0
	for _, e := range r.entries(t) {
		p := place{e.Session, e.Sequence}
		s, ok := sent[p]
		if !ok || seen[p] {
			t.Fatalf("entry %s of %s (%s, sequence %d): sent %v, seen before %v", e.id, e.stream, e.Event, e.Sequence, ok, seen[p])
		}
		seen[p] = true
		if !slices.Equal(e.names, wire.Fields[:]) {
			t.Fatalf("fields of %s are %v, want %v", e.id, e.names, wire.Fields)
		}
		if e.Event != s.Type || e.Shard != s.Shard || e.Received == 0 {
			t.Errorf("sequence %d: event %s, shard %d, received %d; sent %s by shard %d", e.Sequence, e.Event, e.Shard, e.Received, s.Type, s.Shard)
		}
		if e.Sequence <= last[e.stream] {
			t.Errorf("%s holds sequence %d behind %d", e.stream, e.Sequence, last[e.stream])
		}
		last[e.stream] = e.Sequence
		if express := strings.Contains(e.stream, ":express:"); express != (e.Event == "INTERACTION_CREATE") {
			t.Errorf("%s is in %s", e.Event, e.stream)
		}
		payload, state := e.Payload, e.State
		if e.Codec == wire.Msgpack {
			payload, state = unpack(t, payload), unpack(t, state)
		}
		data := []byte(s.Data)
		if s.Type == "READY" {
			data = rawjson.AppendEmptied(nil, data, "session_id", "resume_gateway_url")
		}
		if e.Codec == wire.JSON && string(payload) != string(data) {
			t.Errorf("payload of %s, sequence %d, is not what was sent", e.Event, e.Sequence)
		}
		if diff := cmp.Diff(decode(t, data, false), decode(t, payload, false)); diff != "" {
			t.Errorf("payload of %s, sequence %d (-sent +got):\n%s", e.Event, e.Sequence, diff)
		}
		if diff := cmp.Diff(decode(t, states[p], true), decode(t, state, true)); diff != "" {
			t.Errorf("state of %s, sequence %d (-want +got):\n%s", e.Event, e.Sequence, diff)
		}
		if len(state) > 0 && corpus.Recorded(e.Event) {
			known++
		}
	}
	if len(seen) != len(sent) {
		t.Errorf("%d dispatches are in the streams, %d were sent", len(seen), len(sent))
	}
	if known != recordedStates {
		t.Errorf("%d entries have a state, want %d", known, recordedStates)
	}
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	if len(packed) == 0 {
		return nil
	}
	text, err := wire.ToJSON(nil, packed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decode returns what text says; bare leaves out what the children of a
// GUILD_CREATE lack.
func decode(t *testing.T, text []byte, bare bool) any {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%.200q: %v", text, err)
	}
	if !bare {
		return v
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			delete(m, "guild_id")
			delete(m, "newly_created")
		}
	}
	return v
}
