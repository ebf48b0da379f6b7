package cache

import "github.com/sluicehq/sluice/internal/dispatch"

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
