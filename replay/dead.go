package replay

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/sluicehq/sluice/internal/wire"
)

// A DeadLetter tells Config.OnDead of an entry that was given up.
type DeadLetter struct {
	ID         string   // of the delivery: <shard>/<lane>/<stream id>
	Letter     string   // its id in the group's dead letters of the shard
	Shard      int      // whose dead letters it is in
	Event      string   // the dispatch's type; empty if the entry could not be read
	GuildID    string   // empty outside guilds
	Deliveries int      // the last included
	Listeners  []string // those that failed for good; none if the entry could not be read
	Errors     []string // why: a line for each of Listeners, or one for the entry
}

// errDied is what listeners are given up for that ran, or may have, when their
// process died.
var errDied = errors.New("process died while it ran")

// errAbandoned is what a listener is given up for that does not return.
var errAbandoned = errors.New("did not return 5s after its time was up, and was abandoned")

// failures returns the listeners that were given up for the entry, with an error
// line each; or none, and why the entry itself was.
func (e *entry) failures() (names, errs []string) {
	if e.reason != "" {
		return nil, []string{e.reason}
	}
	add := func(name, err string) {
		names = append(names, name)
		errs = append(errs, name+": "+err)
	}
	for _, line := range e.before {
		if line.failed {
			add(line.name, line.err)
		}
	}
	for i := range e.tasks {
		if t := &e.tasks[i]; t.state == failed && !t.before {
			add(t.listener.name, oneLine(t.err))
		}
	}
	return names, errs
}

// appendFields appends the entry's own fields, as far as they are known, as they
// would be in the stream.
func (e *entry) appendFields(args []any) []any {
	d := &e.delivery
	own := wire.Entry{
		Event: d.Type, Payload: d.Payload, State: d.Previous, Shard: d.Shard, Sequence: d.Sequence, Session: d.Session,
		Received: d.Received.UnixMilli(), Codec: wire.JSON, Trace: d.Trace, Target: e.target,
	}
	for _, f := range []struct {
		set  bool
		flag wire.Flags
	}{{d.Sync, wire.Sync}, {d.Synthetic, wire.Synthetic}, {d.Slim, wire.Slim}, {d.Partial, wire.Partial}} {
		if f.set {
			own.Flags |= f.flag
		}
	}
	return own.AppendArgs(args)
}

// mourn counts and tells a dead letter that is stored. It is called with the
// desk's mutex held.
func (w *Worker) mourn(e *entry, letter string, dropped int64) {
	w.metrics.dead.Inc()
	names, errs := e.failures()
	w.deaths.log(w.log, slog.LevelError, "entry is a dead letter",
		slog.String("id", deliveryID(e.src.label, e.id)), slog.String("event", e.delivery.Type), slog.String("letter", letter),
		slog.Any("listeners", names), slog.String("err", strings.Join(errs, "\n")))
	w.droppedLetters(e.src.lane, dropped)
	if w.letters == nil {
		return
	}
	told := DeadLetter{
		ID: deliveryID(e.src.label, e.id), Letter: letter, Shard: e.src.lane.shard, Event: e.delivery.Type,
		GuildID: e.delivery.GuildID, Deliveries: e.deliveries, Listeners: names, Errors: errs,
	}
	select {
	case w.letters <- told:
	default:
		w.metrics.untold.Inc()
	}
}

// droppedLetters counts and tells what a bound has dropped.
func (w *Worker) droppedLetters(l *lane, n int64) {
	if n > 0 {
		w.metrics.deadDropped.Add(float64(n))
		w.drops.log(w.log, slog.LevelWarn, "dead letters were dropped: too many, or too old", slog.String("key", l.dead), slog.Int64("dropped", n),
			slog.Int("dead_length", w.config.DeadLength), slog.Duration("dead_age", w.config.DeadAge))
	}
}

// maxUntold is how many letters OnDead may be behind.
const maxUntold = 1024

// tell calls OnDead for each letter until there are no more.
func (w *Worker) tell() {
	for letter := range w.letters {
		w.tellOne(letter)
	}
}

func (w *Worker) tellOne(letter DeadLetter) {
	defer func() {
		if v := recover(); v != nil {
			w.log.Error("Config.OnDead panicked", "id", letter.ID, "err", v)
		}
	}()
	w.config.OnDead(letter)
}
