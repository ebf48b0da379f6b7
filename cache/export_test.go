package cache

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// LaidOver lists the values that a Reader lays over entities, as <kind> <name>.
func LaidOver() (names []string) {
	for _, kind := range dispatch.Kinds {
		for _, b := range besides[kind] {
			names = append(names, string(kind)+" "+string(b.name))
		}
	}
	return names
}

// BucketOf returns the number of the bucket that a message is in.
func BucketOf(id string) int64 { return bucketOf([]byte(id)) }

// LeftLong makes the voice states of members who have left old.
func (s *Store) LeftLong() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.trims.left {
		s.trims.left[i].at = s.trims.left[i].at.Add(-leftFor)
	}
}

// CheckMemory compares the sums that memory keeps with what is in it.
func (s *Store) CheckMemory() error {
	var want [numKinds]held
	used := int64(0)
	for _, in := range s.mem.scopes {
		used += scopeBytes
		all := slices.Collect(maps.Values(in.messages))
		for _, c := range in.kinds {
			if c != nil {
				all = append(all, c)
			}
		}
		if len(all) != in.size {
			return fmt.Errorf("scope %s has %d collections and counts %d", in.id, len(all), in.size)
		}
		for _, c := range all {
			used += collectionBytes
			if c.whole != nil {
				used += entryBytes
			}
			for _, e := range c.entries {
				want[c.kind].entries++
				want[c.kind].bytes += entryBytes + int64(len(e.value))
			}
		}
	}
	for kind, h := range want {
		used += h.bytes
		if h != s.mem.held[kind] {
			return fmt.Errorf("memory of kind %s: counted %+v, want %+v", dispatch.Kinds[kind], s.mem.held[kind], h)
		}
	}
	if used != s.mem.used {
		return fmt.Errorf("memory in use: counted %d bytes, want %d", s.mem.used, used)
	}
	return nil
}
