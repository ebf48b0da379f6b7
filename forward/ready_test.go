package forward_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func guild(session string, seq int64, id, name string) gateway.Dispatch {
	return dispatch(session, seq, "GUILD_CREATE", `{"id":"`+id+`","name":"`+name+`","roles":[],"channels":[],"members":[],"emojis":[],"stickers":[]}`)
}

// at returns the entries with a sequence or event, in the order of their ids.
func of(all []stored, event string) (some []stored) {
	for _, e := range all {
		if e.Event == event {
			some = append(some, e)
		}
	}
	return some
}

// TestNewSession begins a second session after the first was lost: the guild
// that is gone is deleted first, then each lane hears of the loss, then READY.
func TestNewSession(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	hold(t, rdb, cfg, ready("one", "9001", "9002"), guild("one", 2, "9001", "stays"), guild("one", 3, "9002", "goes"))

	keys := wire.NewShard(cfg.Prefix, 0, 1)
	before := record(t, rdb, cfg.Prefix)
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if want := (gateway.Session{ID: "one", ResumeURL: "wss://resume.example", Sequence: 3}); h.Session != want {
			t.Errorf("session to resume = %+v, want %+v", h.Session, want)
		}
		if got := h.HeartbeatSequence(3); got != 3 {
			t.Errorf("a heartbeat carries %d, want 3", got)
		}
		h.End(ctx, "invalid session")
		if err := take(ready("two", "9001", "9003")); err != nil {
			return err
		}
		if got := h.HeartbeatSequence(1); got > 1 {
			t.Errorf("a heartbeat of the new session carries %d", got)
		}
		return errors.Join(take(guild("two", 2, "9001", "back")), take(guild("two", 3, "9003", "announced")), take(guild("two", 4, "9004", "joined")))
	})
	if err != nil {
		t.Fatal(err)
	}
	got := entries(t, rdb, cfg.Prefix)

	deletes := of(got, "GUILD_DELETE")
	if len(deletes) != 1 || string(deletes[0].Payload) != `{"id":"9002"}` || deletes[0].Flags != wire.Synthetic || deletes[0].Sequence != 0 ||
		!strings.Contains(string(deletes[0].State), `"goes"`) || deletes[0].Session != wire.ShortSession("two") {
		t.Errorf("synthetic deletes = %+v", deletes)
	}
	lost := of(got, wire.EventSessionLost)
	seen := make(map[string]bool)
	for _, e := range lost {
		seen[e.Stream] = true
		var notice struct {
			Session  string
			Sequence int64
			Reason   string
			Since    int64
			Until    int64
		}
		if err := json.Unmarshal(e.Payload, &notice); err != nil {
			t.Fatal(err)
		}
		if notice.Session != wire.ShortSession("one") || notice.Sequence != 3 || notice.Reason != "invalid session" || notice.Since == 0 || notice.Until < notice.Since {
			t.Errorf("notice = %+v", notice)
		}
	}
	if len(lost) != lanes || len(seen) != lanes {
		t.Errorf("%d notices in %d streams, want one in each of %d lanes", len(lost), len(seen), lanes)
	}
	readies := of(got, "READY")
	if len(readies) != 2 {
		t.Fatalf("%d READY, want 2", len(readies))
	}
	if payload := string(readies[1].Payload); strings.Contains(payload, "two") || strings.Contains(payload, "resume.example") {
		t.Errorf("READY tells its session: %s", payload)
	}
	// The order within READY's lane: the delete (if it is there), the notice, READY.
	order := ""
	for _, e := range got {
		if e.Stream == readies[1].Stream && e.ID > readies[0].ID && e.Session == wire.ShortSession("two") {
			order += e.Event + " "
		}
	}
	if !strings.Contains(order, wire.EventSessionLost+" READY ") {
		t.Errorf("order in READY's lane: %s", order)
	}
	if later(deletes[0].ID, lost[0].ID) {
		t.Errorf("the guild was deleted at %s, behind the notice at %s", deletes[0].ID, lost[0].ID)
	}
	for _, e := range of(got, "GUILD_CREATE") {
		want := wire.Sync
		if strings.Contains(string(e.Payload), `"joined"`) {
			want = 0
		}
		if e.Flags != want {
			t.Errorf("%s has flags %q, want %q", e.Payload, e.Flags, want)
		}
	}
	after := record(t, rdb, cfg.Prefix)
	want := map[string]string{wire.SessionID: "two", wire.SessionResumeURL: "wss://resume.example", wire.SessionSequence: "4", wire.SessionIntents: "1"}
	for field, value := range want {
		if after[field] != value {
			t.Errorf("record's %s = %q, want %q", field, after[field], value)
		}
	}
	if after[wire.SessionFence] == before[wire.SessionFence] {
		t.Error("the fence was not raised by the takeover")
	}
	if n, err := rdb.HGet(t.Context(), keys.Cache("guild"), "9002").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("the guild that is gone is still cached: %q, %v", n, err)
	}
}

func later(a, b string) bool {
	x, y := strings.SplitN(a, "-", 2), strings.SplitN(b, "-", 2)
	return len(x[0]) > len(y[0]) || (len(x[0]) == len(y[0]) && x[0] > y[0])
}

// TestRecordKeepsTheOldSession looks between the reconcile's commits and READY's.
func TestRecordKeepsTheOldSession(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	hold(t, rdb, cfg, ready("one", "9001"), guild("one", 2, "9001", "goes"))
	gate := newGate(t, redistest.Addr(t), []byte(wire.EventSessionLost))
	err := forward.Hold(t.Context(), through(t, gate.addr()), cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		gate.shut()
		if err := take(ready("two")); err != nil {
			return err
		}
		select {
		case <-gate.holding:
		case <-ctx.Done():
		}
		if r := record(t, rdb, cfg.Prefix); r[wire.SessionID] != "one" || r[wire.SessionSequence] != "2" {
			t.Errorf("before READY is committed the record says %v", r)
		}
		if n := len(of(entries(t, rdb, cfg.Prefix), "GUILD_DELETE")); n != 1 {
			t.Errorf("%d guilds deleted before READY, want 1", n)
		}
		gate.open()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if next := hold(t, rdb, cfg); next.Session.ID != "two" {
		t.Errorf("the next process resumes %+v", next.Session)
	}
}

// TestScenario146And154Repeated drops what a resume sends again, keeps what has no sequence, and
// tells each lane of a jump.
func TestScenario146And154Repeated(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	typing := func(seq int64) gateway.Dispatch {
		return dispatch("s", seq, "TYPING_START", `{"channel_id":"1","user_id":"2","timestamp":1}`)
	}
	check := func(want []int64, gaps string) {
		t.Helper()
		var seqs []int64
		told := make(map[string]int)
		all := entries(t, rdb, cfg.Prefix)
		for _, e := range all {
			if e.Event == wire.EventSequenceGap {
				told[string(e.Payload)]++
				continue
			}
			seqs = append(seqs, e.Sequence)
		}
		slices.Sort(seqs)
		if diff := cmp.Diff(want, seqs); diff != "" {
			t.Errorf("sequences (-want +got):\n%s", diff)
		}
		for payload, n := range told {
			if n != lanes || !strings.Contains(gaps, payload) {
				t.Errorf("%d notices say %s, want %d of %s", n, payload, lanes, gaps)
			}
		}
		if want := strings.Count(gaps, "last"); len(told) != want {
			t.Errorf("%d gaps were told, want %d", len(told), want)
		}
		inOrder(t, all)
	}
	hold(t, rdb, cfg, ready("s"), typing(2), typing(5), typing(5), typing(4), typing(0), typing(9), dispatch("s", 10, "RESUMED", `{"_trace":[]}`))
	gaps := `{"last":2,"next":5} {"last":5,"next":9}`
	check([]int64{0, 1, 2, 5, 9, 10}, gaps)
	// A process that starts anew gets the replay of what is committed already.
	hold(t, rdb, cfg, typing(9), dispatch("s", 10, "RESUMED", `{}`), typing(11))
	check([]int64{0, 1, 2, 5, 9, 10, 11}, gaps)
	hold(t, rdb, cfg, typing(13))
	check([]int64{0, 1, 2, 5, 9, 10, 11, 13}, gaps+` {"last":11,"next":13}`)
}

// TestIntentsChanged identifies anew: a resumed session keeps its old intents.
func TestIntentsChanged(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	hold(t, rdb, cfg, ready("s"))
	if err := rdb.HSet(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Session(), wire.SessionIntents, 513).Err(); err != nil {
		t.Fatal(err)
	}
	held := hold(t, rdb, cfg, ready("next"))
	if held.Session != (gateway.Session{}) {
		t.Errorf("session to resume = %+v, want none", held.Session)
	}
	if lost := of(entries(t, rdb, cfg.Prefix), wire.EventSessionLost); len(lost) != lanes || !strings.Contains(string(lost[0].Payload), "intents changed") {
		t.Errorf("notices = %+v", lost)
	}
}

// TestScenario057OddPayloads forwards what it can't make sense of as it is.
func TestScenario057OddPayloads(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	payloads := map[int64]string{2: `null`, 3: ``, 4: `[1,2]`, 5: `"text"`, 6: `{"id":`, 7: `17`, 8: `{}`, 9: `{"id":null,"guild_id":[]}`}
	all := []gateway.Dispatch{ready("s")}
	for seq := int64(2); seq <= 9; seq++ {
		all = append(all, dispatch("s", seq, "GUILD_CREATE", payloads[seq]))
	}
	all = append(all, dispatch("s", 10, "NEVER_HEARD_OF", `{"a":1e400}`))
	payloads[10] = `{"a":1e400}`
	for _, codec := range []string{wire.JSON, wire.Msgpack} {
		cfg.Codec, cfg.Prefix = codec, redistest.Prefix(t)+codec
		hold(t, rdb, cfg, all...)
		got := entries(t, rdb, cfg.Prefix)
		if diff := cmp.Diff(upTo(10), sequences(got)); diff != "" {
			t.Errorf("%s: sequences (-want +got):\n%s", codec, diff)
		}
		for _, e := range got {
			if want := payloads[e.Sequence]; e.Sequence > 1 && e.Codec == wire.JSON && string(e.Payload) != want {
				t.Errorf("%s: payload %d = %q, want %q", codec, e.Sequence, e.Payload, want)
			}
		}
	}
}
