// Package metrics registers collectors that several parts of a process, or one
// part at several times, may share.
package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c and returns it, or the collector that is registered under
// its name already: a shard that is taken over again counts on. Without a
// registerer, or where another kind of collector has the name, c counts for
// nobody.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	return c
}
