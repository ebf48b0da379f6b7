package replay

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/wire"
)

// fellows are the live workers of the group, as they tell each other of themselves.
// All of them ought to have the same listeners: an entry is heard by those of the
// worker that holds its lane alone. While a new version is rolled out they differ
// for a while, so that is told and counted, and nobody is unready for it.
type fellows struct {
	w    *Worker
	key  string
	info string // what others see, but for the number of lanes
	mark string // the same for workers that do the same
	live int    // this one included

	known    map[string]fellow // by mark: how those are unlike this one
	differ   *prometheus.GaugeVec
	unlikely sparing // log lines
}

// A fellow is what a worker tells of itself and others judge it by.
type fellow struct {
	Consumer  string   `json:"consumer"`
	Host      string   `json:"host"`
	PID       int      `json:"pid"`
	Build     string   `json:"build"`
	Started   int64    `json:"started"`   // unix ms
	Listeners []string `json:"listeners"` // names
	Patterns  []string `json:"patterns"`  // of each
}

// maxMarks bounds how many kinds of workers are told apart.
const maxMarks = 100

func newFellows(w *Worker) *fellows {
	f := &fellows{w: w, key: wire.WorkersKey(w.config.Prefix, w.config.Group), known: make(map[string]fellow)}
	f.differ = w.metrics.differing
	host, _ := os.Hostname()
	self := fellow{Consumer: w.id, Host: host, PID: os.Getpid(), Build: build(), Started: w.epoch.UnixMilli()}
	sorted := slices.SortedFunc(slices.Values(w.all), func(a, b *bound) int { return strings.Compare(a.name, b.name) })
	for _, b := range sorted {
		self.Listeners = append(self.Listeners, b.name)
		self.Patterns = append(self.Patterns, b.Pattern())
	}
	h := fnv.New64a()
	for _, text := range slices.Concat([]string{self.Build}, self.Listeners, self.Patterns) {
		h.Write([]byte(text + "\n"))
	}
	f.mark = strconv.FormatUint(h.Sum64(), 16)
	f.known[f.mark] = self
	about, _ := json.Marshal(self) // of strings and numbers: it can't fail
	f.info = `"mark":"` + f.mark + `",` + string(about[1:len(about)-1])
	return f
}

// build returns what the program was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, modified := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	return revision + modified
}

// meet tells the others that this worker lives and holds so many lanes, and returns
// the ids of all that live, in their order.
func (f *fellows) meet(ctx context.Context, lanes int) (live []string, err error) {
	info := f.info + `,"lanes":` + strconv.Itoa(lanes) + "}"
	answer, err := heartbeat.Run(ctx, f.w.control, []string{f.key}, f.w.id, info, f.w.config.Lease.Milliseconds()).StringSlice()
	if err != nil {
		return nil, err
	}
	marks := make(map[string]int)
	for i := 0; i+1 < len(answer); i += 2 {
		live = append(live, answer[i])
		marks[answer[i+1]]++
	}
	slices.Sort(live)
	f.live = len(live)
	f.compare(ctx, marks)
	return live, nil
}

// compare counts the workers that are unlike this one, and names the kinds that
// were not seen before. marks has how many workers there are of each.
func (f *fellows) compare(ctx context.Context, marks map[string]int) {
	self := f.known[f.mark]
	listeners, builds := 0, 0
	for mark, n := range marks {
		other, ok := f.known[mark]
		if !ok {
			if other, ok = f.look(ctx, mark); !ok {
				continue // it has gone meanwhile, or is told next time
			}
			if len(f.known) >= maxMarks {
				f.known = map[string]fellow{f.mark: self}
			}
			f.known[mark] = other
			f.name(self, other)
		}
		if !slices.Equal(other.Listeners, self.Listeners) || !slices.Equal(other.Patterns, self.Patterns) {
			listeners += n
		}
		if other.Build != self.Build {
			builds += n
		}
	}
	f.differ.WithLabelValues("listeners").Set(float64(listeners))
	f.differ.WithLabelValues("build").Set(float64(builds))
}

// look finds a worker with a mark.
func (f *fellows) look(ctx context.Context, mark string) (other fellow, ok bool) {
	all, err := f.w.control.HGetAll(ctx, f.key).Result()
	if err != nil {
		return other, false
	}
	for _, text := range all {
		var w struct {
			Mark string `json:"mark"`
			fellow
		}
		if err := json.Unmarshal([]byte(text), &w); err == nil && w.Mark == mark {
			return w.fellow, true
		}
	}
	return other, false
}

// name logs how a worker is unlike this one.
func (f *fellows) name(self, other fellow) {
	bind := func(w fellow) (all []string) {
		for i, name := range w.Listeners {
			if i < len(w.Patterns) {
				name += " (" + w.Patterns[i] + ")"
			}
			all = append(all, name)
		}
		return all
	}
	without := func(all, those []string) string {
		var left []string
		for _, name := range all {
			if !slices.Contains(those, name) {
				left = append(left, name)
			}
		}
		if n := len(left); n > 10 {
			left = append(left[:10], "and "+strconv.Itoa(n-10)+" more")
		}
		return strings.Join(left, ", ")
	}
	ours, theirs := bind(self), bind(other)
	attrs := []slog.Attr{
		slog.String("other", other.Consumer), slog.String("host", other.Host), slog.Int("pid", other.PID),
		slog.String("build", self.Build), slog.String("other_build", other.Build),
	}
	if slices.Equal(ours, theirs) {
		f.unlikely.log(f.w.log, slog.LevelInfo, "a worker of the group is of another build", attrs...)
		return
	}
	attrs = append(attrs, slog.String("only_here", without(ours, theirs)), slog.String("only_there", without(theirs, ours)))
	f.unlikely.log(f.w.log, slog.LevelWarn, "a worker of the group has other listeners; each hears only the entries of the lanes its worker holds", attrs...)
}
