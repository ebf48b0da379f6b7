package replay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener"
)

// refuse returns what is wrong with a registry's listeners for a worker that gets
// the events that a gateway forwards.
func refuse(registry *listener.Registry, events []string) error {
	var errs []error
	if registry.NeedsSession() {
		errs = append(errs, listener.ErrNoSession)
	}
	var patterns []dispatch.Pattern
	for _, text := range events {
		p, err := dispatch.Compile(strings.TrimSpace(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("Config.Events: %w", err))
			continue
		}
		patterns = append(patterns, p)
	}
	if len(events) == 0 || len(patterns) < len(events) {
		return errors.Join(errs...)
	}
	forwarded := func(name string) bool {
		for _, p := range patterns {
			if p.Match(name) {
				return true
			}
		}
		return false
	}
	for _, l := range registry.All() {
		// What is for none of Discord's types is for custom events, which are not
		// the gateway's to forward.
		wants, gets := false, false
		for i := range dispatch.Types {
			t := &dispatch.Types[i]
			if l.Matches(t.Name) {
				wants = true
				gets = gets || forwarded(t.Name)
			}
		}
		if wants && !gets {
			errs = append(errs, fmt.Errorf("listener %s would run nowhere: it is for %s, and forward.events has only %s",
				l.Name(), l.Pattern(), strings.Join(events, ", ")))
		}
	}
	return errors.Join(errs...)
}
