package wire_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestParseTopology(t *testing.T) {
	t.Parallel()
	good := map[string]string{"application": "81384788765712384", "shards": "2", "lanes": "8", "created": "1932963600123", "newer": "x"}
	got, ok, err := wire.ParseTopology(good)
	want := wire.Topology{Application: "81384788765712384", Shards: 2, Lanes: 8, Created: time.UnixMilli(1932963600123)}
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("ParseTopology = %v, %v (-want +got):\n%s", ok, err, diff)
	}
	for _, none := range []map[string]string{nil, {}} {
		if got, ok, err := wire.ParseTopology(none); ok || err != nil || got != (wire.Topology{}) {
			t.Errorf("ParseTopology of nothing = %v, %v, %v, want nothing", got, ok, err)
		}
	}
	for field, values := range map[string][]string{
		"shards":  {"", "0", "-1", "two", "1.0"},
		"lanes":   {"", "0", "-8", "x"},
		"created": {"", "today", "1e9"},
	} {
		for _, value := range values {
			bad := maps.Clone(good)
			bad[field] = value
			_, ok, err := wire.ParseTopology(bad)
			if ok || err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("ParseTopology with %s = %q: %v, %v, want an error that names it", field, value, ok, err)
			}
		}
	}
}

func TestDefaultLanes(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int]int{
		1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 7: 4, 8: 2, 9: 2, 15: 2, 16: 1, 17: 1, 64: 1, 5000: 1,
	} {
		got := wire.DefaultLanes(shards)
		if got != want {
			t.Errorf("DefaultLanes(%d) = %d, want %d", shards, got, want)
		}
		if got*shards < wire.MinLanes || got&(got-1) != 0 {
			t.Errorf("DefaultLanes(%d) = %d: not a power of two that gives %d in all", shards, got, wire.MinLanes)
		}
	}
}
