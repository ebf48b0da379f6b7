package forward_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A seen entry is what a reader of the streams gets of one.
type seen struct {
	event   string
	payload string
	state   string
	flags   wire.Flags
}

// TestScenarios takes payloads that have broken other software the whole way: each
// dispatch is an entry, its payload what was sent, in JSON to the byte. Each case is
// named after the public report it stands for.
func TestScenarios(t *testing.T) {
	t.Parallel()
	all := make(map[string]corpus.Scenario)
	for _, s := range corpus.Scenarios() {
		all[s.Number()] = s
	}
	state := func(t *testing.T, e seen, has ...string) {
		t.Helper()
		for _, text := range has {
			if !strings.Contains(e.state, text) {
				t.Errorf("state of %s = %.300q, want %q in it", e.event, e.state, text)
			}
		}
		if len(has) == 0 && e.state != "" {
			t.Errorf("state of %s = %.300q, want none", e.event, e.state)
		}
	}
	flags := func(t *testing.T, entries []seen, want ...wire.Flags) {
		t.Helper()
		var got []wire.Flags
		for _, e := range entries {
			if strings.HasPrefix(e.event, "GUILD_") {
				got = append(got, e.flags)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d guild entries, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("flags of guild entry %d = %q, want %q", i, got[i], want[i])
			}
		}
	}
	tests := map[string]func(t *testing.T, entries []seen){
		"081": func(t *testing.T, e []seen) { // created, outage, outage, back, removed
			flags(t, e, 0, 0, 0, wire.Sync, 0)
			for _, i := range []int{1, 2, 4} {
				state(t, e[i], `"name"`)
			}
		},
		"075": func(t *testing.T, e []seen) { // in the order they came in
			state(t, e[1], `"2031-04-05T06:10:00+00:00"`)
			state(t, e[2], `"edited_timestamp":null`, `"flags":4`)
		},
		"077": func(t *testing.T, e []seen) { // nothing is swallowed for being the same
			for _, e := range e[1:] {
				state(t, e, `"content"`)
			}
		},
		"089": func(t *testing.T, e []seen) {
			state(t, e[1])
			state(t, e[2])
		},
		"093": func(t *testing.T, e []seen) { // distinct dispatches, each with the one before
			state(t, e[1])
			state(t, e[2], "06:07:08.10000")
			state(t, e[3], "06:07:08.50000")
		},
		"083": func(t *testing.T, e []seen) {
			flags(t, e, 0, wire.Sync)
		},
		"087": func(t *testing.T, e []seen) {
			for _, e := range e {
				if e.event == "GUILD_DELETE" {
					state(t, e, `"id":"90010000000000001"`)
				}
			}
		},
		"143": func(t *testing.T, e []seen) {
			if len(e) != 1 || !strings.Contains(e[0].payload, `"id":"900500000000000001","id":"900500000000000002","ID":"900500000000000003"`) {
				t.Errorf("entries = %+v", e)
			}
		},
		"144": func(t *testing.T, e []seen) { // only dispatches become entries
			for _, e := range e {
				if e.event == "" {
					t.Errorf("an entry without an event: %+v", e)
				}
			}
		},
		"152": func(t *testing.T, e []seen) {
			if len(e) != 4 {
				t.Fatalf("%d entries, want 4 RESUMED", len(e))
			}
			for _, e := range e {
				if e.event != "RESUMED" {
					t.Errorf("event %s, want RESUMED", e.event)
				}
			}
		},
		"155": func(t *testing.T, e []seen) {
			for _, e := range e {
				if e.state != "" && e.state == e.payload {
					t.Errorf("%s: what was before is what is now", e.event)
				}
			}
		},
		"157": func(t *testing.T, e []seen) {
			updates := 0
			for _, e := range e {
				if e.event == "GUILD_UPDATE" {
					updates++
					state(t, e, `"joined_at"`, `"member_count"`)
				}
			}
			if updates != 2 {
				t.Errorf("%d updates, want 2", updates)
			}
		},
	}
	for number := range tests {
		if _, ok := all[number]; !ok {
			t.Errorf("scenario %s is not in the corpus", number)
		}
	}
	for number, scenario := range all {
		for _, codec := range []string{wire.JSON, wire.Msgpack} {
			t.Run(scenario.Name+"/"+codec, func(t *testing.T) {
				t.Parallel()
				rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
				cfg.Codec = codec
				dispatches := []gateway.Dispatch{ready("s")}
				for _, e := range scenario.Envelopes {
					if e.Op != 0 || e.Type == "" || e.Type == "READY" {
						continue
					}
					dispatches = append(dispatches, gateway.Dispatch{
						Type: e.Type, Sequence: int64(len(dispatches) + 1), Data: e.Payload, Received: time.Now().UnixMilli(), SessionID: "s",
					})
				}
				hold(t, rdb, cfg, dispatches...)
				bySequence := make([]seen, len(dispatches)+1)
				n := 0
				for _, e := range entries(t, rdb, cfg.Prefix) {
					d := dispatches[e.Sequence-1]
					payload, state := e.Payload, e.State
					if e.Codec == wire.Msgpack {
						payload, state = jsonOf(t, payload), nil
						if len(e.State) > 0 {
							state = jsonOf(t, e.State)
						}
						if diff := cmp.Diff(plain(t, d.Data), plain(t, payload)); diff != "" && d.Type != "READY" {
							t.Errorf("payload of %s, sequence %d (-sent +got):\n%s", e.Event, e.Sequence, diff)
						}
					} else if d.Type != "READY" && string(payload) != string(d.Data) {
						t.Errorf("%s %.200q became %.200q", d.Type, d.Data, payload)
					}
					if e.Event != d.Type {
						t.Errorf("%s became %s", d.Type, e.Event)
					}
					bySequence[e.Sequence] = seen{e.Event, string(payload), string(state), e.Flags}
					n++
				}
				if n != len(dispatches) {
					t.Fatalf("%d entries for %d dispatches", n, len(dispatches))
				}
				if check := tests[number]; check != nil {
					check(t, bySequence[2:])
				}
			})
		}
	}
}

// TestScenario085StaleChildrenAfterRecreate replaces a guild's children by those
// of its next GUILD_CREATE.
func TestScenario085StaleChildrenAfterRecreate(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	create := func(seq int64, children string) gateway.Dispatch {
		return dispatch("s", seq, "GUILD_CREATE", `{"id":"9001","name":"g",`+children+`,"members":[],"threads":[],"presences":[],"stickers":[]}`)
	}
	hold(t, rdb, cfg, ready("s"),
		create(2, `"channels":[{"id":"1"},{"id":"2"}],"roles":[{"id":"3"}],"voice_states":[{"user_id":"4"}],"emojis":[{"id":"5"}]`),
		create(3, `"channels":[{"id":"1"}],"roles":[],"voice_states":[],"emojis":[]`),
		dispatch("s", 4, "CHANNEL_DELETE", `{"id":"2","guild_id":"9001"}`), dispatch("s", 5, "CHANNEL_DELETE", `{"id":"1","guild_id":"9001"}`),
		dispatch("s", 6, "GUILD_ROLE_DELETE", `{"guild_id":"9001","role_id":"3"}`),
		dispatch("s", 7, "VOICE_STATE_UPDATE", `{"guild_id":"9001","user_id":"4","channel_id":null}`),
		dispatch("s", 8, "GUILD_EMOJIS_UPDATE", `{"guild_id":"9001","emojis":[]}`))
	want := map[int64]string{4: "", 5: `{"id":"1"}`, 6: "", 7: "", 8: "[]"}
	for _, e := range entries(t, rdb, cfg.Prefix) {
		if state, ok := want[e.Sequence]; ok && string(e.State) != state {
			t.Errorf("state of %s, sequence %d = %q, want %q", e.Event, e.Sequence, e.State, state)
		}
	}
}

// TestScenario148ReadyAfterCreateWipes takes a READY with the guilds right behind
// it, in one go: they are all cached, and in the order of their sequence.
func TestScenario148ReadyAfterCreateWipes(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	const guilds = 50
	var ids []string
	for i := range guilds {
		ids = append(ids, itoa(int64(9100+i)))
	}
	dispatches := []gateway.Dispatch{ready("s", ids...)}
	for i, id := range ids {
		dispatches = append(dispatches, guild("s", int64(i+2), id, "g"+id))
	}
	hold(t, rdb, cfg, dispatches...)
	if n := rdb.HLen(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Cache("guild")).Val(); n != guilds {
		t.Errorf("%d guilds are cached, want %d", n, guilds)
	}
	got := entries(t, rdb, cfg.Prefix)
	inOrder(t, got)
	for _, e := range of(got, "GUILD_CREATE") {
		if e.Flags != wire.Sync {
			t.Errorf("guild of sequence %d has flags %q, want sync", e.Sequence, e.Flags)
		}
	}
}

// TestPartialStates sends what is known in part with the flag, and without the mark
// it has in the cache.
func TestPartialStates(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{wire.JSON, wire.Msgpack} {
		rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
		cfg.Codec = codec
		hold(t, rdb, cfg, ready("s"),
			dispatch("s", 2, "GUILD_MEMBER_UPDATE", `{"guild_id":"9001","user":{"id":"5"},"nick":"a"}`),
			dispatch("s", 3, "GUILD_MEMBER_UPDATE", `{"guild_id":"9001","user":{"id":"5"},"nick":"b"}`),
			dispatch("s", 4, "GUILD_MEMBER_REMOVE", `{"guild_id":"9001","user":{"id":"5"}}`),
			dispatch("s", 5, "MESSAGE_CREATE", `{"id":"3","channel_id":"2","guild_id":"9001"}`),
			dispatch("s", 6, "MESSAGE_DELETE_BULK", `{"ids":["3","4"],"channel_id":"2","guild_id":"9001"}`))
		want := map[int64]seen{
			2: {},
			3: {state: `{"guild_id":"9001","user":{"id":"5"},"nick":"a"}`, flags: wire.Partial},
			4: {state: `{"guild_id":"9001","user":{"id":"5"},"nick":"b"}`, flags: wire.Partial},
			5: {},
			6: {state: `[{"id":"3","channel_id":"2","guild_id":"9001"}]`, flags: wire.Partial},
		}
		for _, e := range entries(t, rdb, cfg.Prefix) {
			state := string(e.State)
			if e.Codec == wire.Msgpack && state != "" {
				state = string(jsonOf(t, e.State))
			}
			if w, ok := want[e.Sequence]; ok && (state != w.state || e.Flags != w.flags) {
				t.Errorf("%s: %s, sequence %d: state %q, flags %q, want %q, %q", codec, e.Event, e.Sequence, state, e.Flags, w.state, w.flags)
			}
		}
	}
}
