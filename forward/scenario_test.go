package forward_test

import (
	"strings"
	"testing"
	"time"

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

// TestScenarios takes payloads that have broken other software the whole way.
// Each case is named after the public report it stands for.
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
	for number, check := range tests {
		scenario, ok := all[number]
		if !ok {
			t.Fatalf("scenario %s is not in the corpus", number)
		}
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
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
				bySequence[e.Sequence] = seen{e.Event, string(e.Payload), string(e.State), e.Flags}
				n++
			}
			if n != len(dispatches) {
				t.Fatalf("%d entries for %d dispatches", n, len(dispatches))
			}
			for i, d := range dispatches[1:] {
				if got := bySequence[i+2]; got.event != d.Type || got.payload != string(d.Data) {
					t.Errorf("%s %.200q became %s %.200q", d.Type, d.Data, got.event, got.payload)
				}
			}
			check(t, bySequence[2:])
		})
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
