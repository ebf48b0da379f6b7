package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	s := wire.NewShard("sluice", 3, 16)
	got := map[string]string{
		"tag":      s.Tag(),
		"stream":   s.Stream(2),
		"express":  s.Express(2),
		"session":  s.Session(),
		"owner":    s.Owner(),
		"cache":    s.Cache("guild"),
		"lease":    s.Lease("workers", 2),
		"progress": s.Progress("workers", 2, false),
		"xprogres": s.Progress("workers", 2, true),
		"dead":     s.Dead("workers"),
		"groups":   s.Groups(),
		"commands": s.Commands(),
		"topology": wire.TopologyKey("sluice"),
		"workers":  wire.WorkersKey("sluice", "workers"),
		"identify": wire.IdentifyKey("sluice", 1),
	}
	want := map[string]string{
		"tag":      "{sluice:3/16}",
		"stream":   "{sluice:3/16}:stream:2",
		"express":  "{sluice:3/16}:express:2",
		"session":  "{sluice:3/16}:session",
		"owner":    "{sluice:3/16}:owner",
		"cache":    "{sluice:3/16}:cache:guild",
		"lease":    "{sluice:3/16}:lease:workers:2",
		"progress": "{sluice:3/16}:progress:workers:2",
		"xprogres": "{sluice:3/16}:progress:workers:x2",
		"dead":     "{sluice:3/16}:dead:workers",
		"groups":   "{sluice:3/16}:groups",
		"commands": "{sluice:3/16}:commands",
		"topology": "sluice:topology",
		"workers":  "sluice:workers:workers",
		"identify": "sluice:identify:1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if s.ID != 3 || s.Count != 16 {
		t.Errorf("NewShard(…, 3, 16) is shard %d of %d", s.ID, s.Count)
	}
}

func TestLivesUntil(t *testing.T) {
	t.Parallel()
	for about, want := range map[string]int64{
		`{"until":1932963600000,"consumer":"a/1"}`: 1932963600000,
		`{"until":7}`:                       7,
		`{"until":"7"}`:                     0,
		`{"consumer":"a","until":7}`:        0,
		`{"until":7`:                        0,
		`{"until":12345678901234567890123}`: 1<<63 - 1,
		"":                                  0,
	} {
		if got := wire.LivesUntil(about); got != want {
			t.Errorf("LivesUntil(%q) = %d, want %d", about, got, want)
		}
	}
}

// The lanes of the vectors were computed apart from this code, by the published
// constants of FNV-1a 64; the first two keys are vectors of its authors.
func TestLane(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key  string
		hash uint64
	}{
		{"a", 0xaf63dc4c8601ec8c},
		{"foobar", 0x85944171f73967e8},
		{"0", 0xaf63ad4c86019caf},
		{"290926798626357250", 0x3ad030dc226b06c1},
		{"290926798626357251", 0x3ad02fdc226b050e},
		{"53908099506183680", 0xe460fbd6058eddfb},
		{"18446744073709551615", 0xedf2a76b38fc3c54},
		{"orders/A-1", 0x56102e8afc7af14a},
	} {
		for _, lanes := range []int{1, 2, 3, 16, 64, 1000003} {
			if got, want := wire.Lane([]byte(tc.key), lanes), int(tc.hash%uint64(lanes)); got != want {
				t.Errorf("Lane(%q, %d) = %d, want %d", tc.key, lanes, got, want)
			}
		}
	}
	for _, key := range [][]byte{nil, {}} {
		if got := wire.Lane(key, 16); got != 0 {
			t.Errorf("Lane(%v, 16) = %d, want 0", key, got)
		}
	}
	if got := wire.Lane([]byte("a"), 0); got != 0 {
		t.Errorf("Lane(a, 0) = %d, want 0", got)
	}
}

func TestLanesShareGuilds(t *testing.T) {
	t.Parallel()
	const lanes, guilds = 16, 16000
	var count [lanes]int
	for i := range guilds {
		// Ids a millisecond apart, as snowflakes of one day are.
		id := 290926798626357250 + int64(i)<<22
		count[wire.Lane([]byte(itoa(id)), lanes)]++
	}
	for lane, n := range count {
		if n < guilds/lanes*8/10 || n > guilds/lanes*12/10 {
			t.Errorf("lane %d has %d of %d guilds, want about %d", lane, n, guilds, guilds/lanes)
		}
	}
}

func itoa(n int64) string { return argText(n) }

func TestShardOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		guild  string
		shards int
		want   int
		ok     bool
	}{
		{"290926798626357250", 1, 0, true},
		{"290926798626357250", 16, 15, true}, // (id >> 22) % 16
		{"4194303", 16, 0, true},
		{"4194304", 16, 1, true},
		{"18446744073709551615", 7, 0, true},
		{"0", 4, 0, true},
		{"", 4, 0, false},
		{"-1", 4, 0, false},
		{"18446744073709551616", 4, 0, false},
		{"guild", 4, 0, false},
		{"1", 0, 0, false},
		{"1", -1, 0, false},
	} {
		got, ok := wire.ShardOf(tc.guild, tc.shards)
		if got != tc.want || ok != tc.ok {
			t.Errorf("ShardOf(%q, %d) = %d, %v, want %d, %v", tc.guild, tc.shards, got, ok, tc.want, tc.ok)
		}
	}
}

func TestShortSession(t *testing.T) {
	t.Parallel()
	if got := wire.ShortSession(""); got != "" {
		t.Errorf("ShortSession of nothing = %q", got)
	}
	// The first bytes of the SHA-256 of "session", as sha256sum prints them.
	if got, want := wire.ShortSession("session"), "3f3af1ecebbd"; got != want {
		t.Errorf("ShortSession(session) = %q, want %q", got, want)
	}
}
