package cache_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// TestInvitesAreBounded has a guild with more invites than Discord allows: those
// that have run out go first, then the oldest.
func TestInvitesAreBounded(t *testing.T) {
	t.Parallel()
	const bound, over = 1000, 30
	b := newBench(t, cache.Config{})
	b.rdb.HSet(t.Context(), b.keys.Session(), wire.SessionFence, "f")
	now := time.Now().UTC()
	var steps []step
	gone := make(map[string]bool)
	for i := range bound + over {
		created := now.Add(-time.Hour + time.Duration(i)*time.Second)
		more := `"max_age":0,"expires_at":null`
		switch {
		case i >= bound && i < bound+10: // new, and out
			more = fmt.Sprintf(`"expires_at":%q`, now.Add(-time.Minute).Format(time.RFC3339Nano))
		case i >= bound+10 && i < bound+20:
			more = `"max_age":60`
		case i >= bound+20:
			more = `"max_age":864000`
		}
		code := fmt.Sprintf("c%04d", i)
		gone[code] = i < 10 || i >= bound && i < bound+20
		steps = append(steps, step{"INVITE_CREATE", fmt.Sprintf(`{"guild_id":"1","code":%q,"created_at":%q,%s}`, code, created.Format(time.RFC3339Nano), more)})
	}
	b.batch(steps)
	b.do("INVITE_CREATE", `{"guild_id":"12","code":"other"}`)
	b.commit()
	if err := b.store.Trim(t.Context(), b.rdb, "not the fence"); err != nil {
		t.Fatal(err)
	}
	key := b.keys.Cache("invite:1")
	if n := b.rdb.HLen(t.Context(), key).Val(); n != bound+over {
		t.Fatalf("%d invites after a Trim under another fence, want %d", n, bound+over)
	}
	b.do("INVITE_CREATE", steps[len(steps)-1].payload)
	if err := b.store.Trim(t.Context(), b.rdb, "f"); err != nil {
		t.Fatal(err)
	}
	left := b.rdb.HGetAll(t.Context(), key).Val()
	if len(left) != bound {
		t.Errorf("%d invites are left, want %d", len(left), bound)
	}
	for code, want := range gone {
		if _, is := left[code]; is == want {
			t.Errorf("invite %s: there %v, want it gone: %v", code, is, want)
		}
	}
	b.holds(hashes{"invite:12": {"other": `{"guild_id":"12","code":"other"}`}})
}

// TestOneKindOff switches each kind off by itself and goes through all trials:
// nothing of the kind is written, and none of its dispatches has a state.
func TestOneKindOff(t *testing.T) {
	t.Parallel()
	for _, kind := range dispatch.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, cache.Config{Off: []string{string(kind)}})
			off := map[dispatch.Kind]bool{kind: true, dispatch.ThreadMember: kind == dispatch.Thread || kind == dispatch.ThreadMember}
			for _, eventType := range slices.Sorted(maps.Keys(trials)) {
				for _, c := range trials[eventType] {
					for _, s := range append(slices.Clone(c.before), step{eventType, c.payload}) {
						state := b.do(s.eventType, s.payload)
						// A voice status is kept beside threads too.
						if rule := dispatch.Lookup(s.eventType).Cache; off[rule.Kind] && state != "" && rule.Do != dispatch.Lay {
							t.Errorf("%s has the state %s", s.eventType, state)
						}
					}
				}
			}
			for _, name := range b.cacheKeys() {
				stem, _, _ := strings.Cut(name, ":")
				if off[dispatch.Kind(stem)] {
					t.Errorf("%s was written", name)
				}
			}
		})
	}
}

// TestKindsAgree holds the kinds of the table against those that can be switched
// off, and each against its keys.
func TestKindsAgree(t *testing.T) {
	t.Parallel()
	names := cache.KindNames()
	if len(names) != len(dispatch.Kinds) || !slices.IsSorted(names) {
		t.Errorf("kinds %v, in the table %v", names, dispatch.Kinds)
	}
	b := newBench(t, cache.Config{})
	for _, e := range recorded() {
		switch dispatch.Lookup(e.Type).Cache.Do {
		case dispatch.Remove, dispatch.RemoveMany, dispatch.GuildDelete, dispatch.SyncThreads:
		default:
			b.do(e.Type, string(e.Payload))
		}
	}
	seen := map[string]bool{}
	for _, name := range b.cacheKeys() {
		stem, _, _ := strings.Cut(name, ":")
		seen[stem] = true
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("nothing of kind %s is cached after a dispatch of each type: %v", name, b.cacheKeys())
		}
		delete(seen, name)
	}
	delete(seen, "unavailable")
	delete(seen, "buckets")
	if len(seen) > 0 {
		t.Errorf("keys of no kind: %v", seen)
	}
}
