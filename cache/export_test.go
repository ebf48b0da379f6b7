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
