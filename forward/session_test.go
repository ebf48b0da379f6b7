package forward_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// TestSession takes the recorded session the whole way and compares each entry
// with what was sent, and each state with what was known before.
func TestSession(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  func(*forward.Config)
	}{
		{"json", func(*forward.Config) {}},
		{"msgpack", func(c *forward.Config) { c.Codec = wire.Msgpack }},
		{"1 MiB of memory", func(c *forward.Config) { c.Cache.MemoryBytes = 1 << 20 }},
		{"64 KiB of buffer", func(c *forward.Config) { c.BufferBytes = 64 << 10 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
			test.set(&cfg)
			sent := recorded()
			hold(t, rdb, cfg, sent...)

			got := entries(t, rdb, cfg.Prefix)
			if diff := cmp.Diff(upTo(int64(len(sent))), sequences(got)); diff != "" {
				t.Fatalf("sequences (-want +got):\n%s", diff)
			}
			want := corpus.States()
			states := 0
			for _, e := range got {
				if !slices.Equal(e.fields, wire.Fields[:]) {
					t.Fatalf("fields of %s = %v, want %v", e.ID, e.fields, wire.Fields)
				}
				d := sent[e.Sequence-1]
				if e.Event != d.Type || e.Shard != 0 || e.Received != d.Received || e.Session != wire.ShortSession("recorded") {
					t.Errorf("entry of sequence %d = %s, shard %d, received %d, session %q", e.Sequence, e.Event, e.Shard, e.Received, e.Session)
				}
				payload := d.Data
				if d.Type == "READY" {
					payload = rawjson.AppendEmptied(nil, payload, "session_id", "resume_gateway_url")
				}
				if e.Codec == wire.JSON {
					if string(e.Payload) != string(payload) {
						t.Errorf("payload of %s, sequence %d, is not what was sent", e.Event, e.Sequence)
					}
				} else if diff := cmp.Diff(plain(t, payload), plain(t, jsonOf(t, e.Payload))); diff != "" {
					t.Errorf("payload of %s, sequence %d (-sent +got):\n%s", e.Event, e.Sequence, diff)
				}
				state := e.State
				if e.Codec == wire.Msgpack && len(state) > 0 {
					state = jsonOf(t, state)
				}
				if diff := cmp.Diff(bare(t, want[e.Sequence].Previous), bare(t, state)); diff != "" {
					t.Errorf("state of %s, sequence %d (-want +got):\n%s", e.Event, e.Sequence, diff)
				}
				if len(state) > 0 && corpus.Recorded(e.Event) {
					states++
				}
				if express := e.Event == "INTERACTION_CREATE"; express != isExpress(e.Stream) {
					t.Errorf("%s is in %s", e.Event, e.Stream)
				}
			}
			if states != 875 {
				t.Errorf("%d entries with a state, want 875", states)
			}
			if test.name == "msgpack" && !slices.ContainsFunc(got, func(e stored) bool { return e.Codec == wire.Msgpack }) {
				t.Error("no entry is msgpack")
			}
			inOrder(t, got)
			if seq := record(t, rdb, cfg.Prefix)[wire.SessionSequence]; seq != itoa(int64(len(sent))) {
				t.Errorf("recorded sequence is %s, want %d", seq, len(sent))
			}
		})
	}
}

func isExpress(stream string) bool { return strings.Contains(stream, ":express:") }

// inOrder checks that each stream holds its entries in the order of their sequence.
func inOrder(t testing.TB, all []stored) {
	t.Helper()
	last := make(map[string]int64)
	for _, e := range all {
		if e.Sequence != 0 && e.Sequence <= last[e.Stream] {
			t.Errorf("%s holds sequence %d behind %d", e.Stream, e.Sequence, last[e.Stream])
		}
		last[e.Stream] = max(last[e.Stream], e.Sequence)
	}
}

func jsonOf(t testing.TB, packed []byte) []byte {
	t.Helper()
	text, err := wire.ToJSON(nil, packed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func plain(t testing.TB, text []byte) any {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%.200q: %v", text, err)
	}
	return v
}

// bare decodes a state without what a GUILD_CREATE's children lack.
func bare(t testing.TB, text []byte) any {
	v := plain(t, text)
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
