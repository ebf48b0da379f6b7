package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// maxIdleLanes is how many lanes are all shown.
const maxIdleLanes = 16

func (s *status) write(w io.Writer, everyLane bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s: application %s, %s of %s, since %s\n", printable(s.Prefix), printable(s.Application),
		plural(s.Shards, "shard"), plural(s.Lanes, "lane"), time.UnixMilli(s.Created).UTC().Format(time.DateTime))
	for _, r := range s.Redis {
		fmt.Fprintf(t, "redis %s: %s\n", printable(r.Version), r.memory())
	}
	fmt.Fprintln(t, "\nSHARD\tGATEWAY\tSESSION\tSEQUENCE\tLAST COMMIT\tENTRIES")
	for _, h := range s.Held {
		session, commit := "none", "-"
		if h.Session {
			session = "resumable"
		}
		if h.Age >= 0 {
			commit = ago(h.Age)
		}
		fmt.Fprintf(t, "%d/%d\t%s\t%s\t%d\t%s\t%d\n", h.Shard, s.Shards, holder(h.Owner), session, h.Sequence, commit, h.Entries)
	}
	if len(s.Groups) == 0 {
		fmt.Fprintln(t, "\nno group: no worker has run yet")
	}
	for _, g := range s.Groups {
		fmt.Fprintf(t, "\ngroup %s: %s, lag %s, pending %s, %d failing, %s\n", printable(g.Group), plural(len(g.Workers), "worker"),
			count(g.Lag, g.Behind), count(g.Pending, g.Oldest), g.Failing, plural(int(g.Dead), "dead letter"))
		if g.Unserved > 0 {
			kept := "entries are kept for it"
			if g.Abandoned {
				kept = "abandoned, entries are no longer kept for it"
			}
			fmt.Fprintf(t, "no worker for %s: %s\n", ago(g.Unserved), kept)
		}
		if g.Trimmed > 0 {
			fmt.Fprintf(t, "trimmed before it had them: %d unread, %d unacked, the last %s ago\n", g.Unread, g.Unacked, ago(s.age(g.Trimmed)))
		}
		if g.Unheld > 0 {
			fmt.Fprintf(t, "%s held by nobody\n", plural(g.Unheld, "lane"))
		}
		if len(g.Workers) > 0 {
			fmt.Fprintln(t, "WORKER\tLANES\tSTARTED\tBUILD\tLISTENERS")
			for _, worker := range g.Workers {
				fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", printable(worker.ID), worker.Lanes, time.UnixMilli(worker.Started).UTC().Format(time.DateTime),
					cmp.Or(printable(worker.Build[:min(len(worker.Build), 12)]), "-"), listed(worker.Listeners))
			}
		}
		idle := 0
		fmt.Fprintln(t, "LANE\tOWNER\tLAG\tPENDING\tFAILING")
		for _, l := range g.Lanes {
			if !everyLane && len(g.Lanes) > maxIdleLanes && l.Owner != "" && l.Lag == 0 && l.Pending == 0 {
				idle++
				continue
			}
			fmt.Fprintf(t, "%d/%d\t%s\t%s\t%s\t%d\n", l.Shard, l.Lane, holder(l.Owner), count(l.Lag, l.Behind), count(l.Pending, l.Oldest), l.Failing)
		}
		if idle > 0 {
			fmt.Fprintf(t, "and %s without anything to do\n", plural(idle, "lane"))
		}
	}
	if err := t.Flush(); err != nil || len(s.Problems) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return s.writeProblems(w)
}

// memory is how much of what it may use a server uses.
func (r redisStatus) memory() string {
	if r.Max == 0 {
		return mebibytes(r.Used) + " used, no maxmemory"
	}
	return fmt.Sprintf("%s used of %s (%d %%)", mebibytes(r.Used), mebibytes(r.Max), 100*r.Used/r.Max)
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

func holder(name string) string { return cmp.Or(printable(name), "nobody") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		return strconv.Itoa(n) + " " + stem + "ies"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// count is a number of entries, and how old the oldest of them is.
func count(n int64, age float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0:
		return "? (" + ago(age) + ")"
	}
	return strconv.FormatInt(n, 10) + " (" + ago(age) + ")"
}

func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// listed names a few listeners and counts many: json has them all.
func listed(names []string) string {
	const few = 5
	if len(names) <= few {
		return printable(strings.Join(names, ","))
	}
	return printable(strings.Join(names[:few], ",")) + fmt.Sprintf(",… (%d)", len(names))
}
