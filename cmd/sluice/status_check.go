package main

import (
	"fmt"
	"io"
	"time"
)

// Exit codes of sluice status --check, beside those of all commands.
const (
	exitWarning  = 3
	exitCritical = 4
)

// limits say how far behind a group may be.
type limits struct{ warning, critical time.Duration }

// A problem is something that ought not to be as it is.
type problem struct {
	Severity string `json:"severity"` // warning or critical
	What     string `json:"what"`
}

const (
	warning  = "warning"
	critical = "critical"
)

// lossRecent is how long a loss is a problem.
const lossRecent = time.Hour

// judge returns what is wrong.
func (s *status) judge(l limits) []problem {
	found := []problem{}
	add := func(severity, format string, args ...any) {
		found = append(found, problem{severity, printable(fmt.Sprintf(format, args...))})
	}
	for _, r := range s.Redis {
		if r.Max > 0 && r.Used >= r.Max/10*9 {
			severity := warning
			if r.Used >= r.Max/100*99 {
				severity = critical
			}
			add(severity, "redis is nearly full: %s", r.memory())
		}
	}
	for _, h := range s.Held {
		switch {
		case h.Owner == "":
			add(critical, "shard %d is held by no gateway", h.Shard)
		case !h.Session:
			add(warning, "shard %d has no session yet", h.Shard)
		}
	}
	for _, g := range s.Groups {
		behind := time.Duration(g.Behind * float64(time.Second))
		switch {
		case g.Abandoned:
			add(warning, "group %s is abandoned: no worker for %s", g.Group, ago(g.Unserved))
		case len(g.Workers) == 0:
			add(warning, "group %s has no worker", g.Group)
		case g.Unheld > 0:
			add(critical, "group %s: %s held by nobody", g.Group, plural(g.Unheld, "lane"))
		}
		switch {
		case len(g.Workers) == 0 || behind <= l.warning:
		case behind > l.critical:
			add(critical, "group %s is %s behind", g.Group, ago(g.Behind))
		default:
			add(warning, "group %s is %s behind", g.Group, ago(g.Behind))
		}
		if g.Trimmed > 0 && !g.Abandoned && s.age(g.Trimmed) < lossRecent.Seconds() {
			add(critical, "group %s lost entries %s ago: %d unread and %d unacked were trimmed in all", g.Group, ago(s.age(g.Trimmed)), g.Unread, g.Unacked)
		}
		if g.Dead > 0 {
			add(warning, "group %s has %s", g.Group, plural(int(g.Dead), "dead letter"))
		}
	}
	return found
}

// verdict returns nil if nothing is wrong, or an error with the exit code that says
// how bad it is.
func (s *status) verdict() error {
	code := 0
	for _, p := range s.Problems {
		if p.Severity == critical {
			return exitError(exitCritical)
		}
		code = exitWarning
	}
	if code == 0 {
		return nil
	}
	return exitError(code)
}

func (s *status) writeProblems(w io.Writer) error {
	for _, p := range s.Problems {
		if _, err := fmt.Fprintf(w, "%s: %s\n", p.Severity, p.What); err != nil {
			return err
		}
	}
	return nil
}
