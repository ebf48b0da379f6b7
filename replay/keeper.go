package replay

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/internal/wire"
)

// A keeper holds this worker's share of the lanes: it renews their leases, takes
// free ones, and hands lanes over when there are more workers.
type keeper struct {
	w       *Worker
	lay     *layout
	groups  [][]*lane // lanes whose keys may be in one script
	every   time.Duration
	runs    context.Context // of the listeners; ends when their time is up at shutdown
	info    string          // what other workers see, but for the number of lanes
	target  int             // lanes this worker should hold
	renewed time.Time
	swept   time.Time
	met     bool // the share is known
	leaving bool
}

var errLaneLost = errors.New("replay: the lease of the lane has ended")

func newKeeper(w *Worker, lay *layout, runs context.Context) *keeper {
	k := &keeper{w: w, lay: lay, runs: runs, every: min(w.config.Lease/10, 500*time.Millisecond), swept: time.Now()}
	w.missing.Store(1) // until the share is known
	for _, n := range lay.nodes {
		k.groups = append(k.groups, n.lanes)
	}
	var names []string
	for _, b := range w.all {
		names = append(names, b.name)
	}
	host, _ := os.Hostname()
	about, _ := json.Marshal(struct { // of strings and numbers: it can't fail
		Consumer  string   `json:"consumer"`
		Host      string   `json:"host"`
		PID       int      `json:"pid"`
		Build     string   `json:"build"`
		Started   int64    `json:"started"` // unix ms
		Listeners []string `json:"listeners"`
	}{w.id, host, os.Getpid(), build(), w.epoch.UnixMilli(), names})
	k.info = string(about[1 : len(about)-1])
	return k
}

// build returns what the program was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// run keeps the lanes until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		k.step(ctx)
		select {
		case <-tick.C:
		case <-k.w.quiet:
		case <-ctx.Done():
			return
		}
	}
}

// step does once what is due.
func (k *keeper) step(ctx context.Context) {
	k.lapse()
	if !k.leaving {
		k.meet(ctx)
	}
	if time.Since(k.renewed) >= k.w.config.Lease/3 {
		k.renew(ctx)
	}
	if k.leaving || k.count(owned) > k.target {
		k.shed()
	}
	k.handOver(ctx)
	if missing := k.target - k.count(owned); missing > 0 && !k.leaving {
		k.acquire(ctx, missing)
	}
	if k.met {
		k.w.missing.Store(int32(max(0, k.target-k.count(owned))))
	}
	if time.Since(k.swept) >= sweepAfter*k.w.config.Lease && !k.leaving {
		k.swept = time.Now()
		k.sweep(ctx)
	}
	k.w.metrics.inHand.Set(float64(k.w.desk.inHand()))
	k.w.metrics.lanes.Set(float64(k.count(owned) + k.count(closing)))
}

func (k *keeper) count(state laneState) int {
	n := 0
	for _, l := range k.lay.lanes {
		if l.state == state {
			n++
		}
	}
	return n
}

// meet tells the other workers of this one and works out its share: lanes divided
// by workers, rounded down, and one more for the first ones.
func (k *keeper) meet(ctx context.Context) {
	info := k.info + `,"lanes":` + strconv.Itoa(k.count(owned)+k.count(closing)) + "}"
	key := wire.WorkersKey(k.w.config.Prefix, k.w.config.Group)
	live, err := heartbeat.Run(ctx, k.w.control, []string{key}, k.w.id, info, k.w.config.Lease.Milliseconds()).StringSlice()
	if err != nil {
		k.failed(ctx, "the list of workers", err)
		return
	}
	k.w.health.ok("the list of workers")
	slices.Sort(live)
	rank := slices.Index(live, k.w.id)
	if rank < 0 {
		return
	}
	k.met = true
	k.target = len(k.lay.lanes) / len(live)
	if rank < len(k.lay.lanes)%len(live) {
		k.target++
	}
}

// lapse takes the consequences for lanes whose lease has ended, or would before
// the next step.
func (k *keeper) lapse() {
	now := k.w.clock()
	for _, l := range k.lay.lanes {
		if l.state != free && !l.valid(now+k.every) {
			k.w.log.Warn("lane lost: its lease was not renewed in time", "lane", l.sources[plain].label)
			k.lose(l)
		}
	}
}

// lose gives up a lane that is, or may be, another's.
func (k *keeper) lose(l *lane) {
	l.until.Store(0)
	l.state = free
	d := k.w.desk
	d.mu.Lock()
	for _, s := range l.sources {
		d.core.drop(s)
	}
	d.mu.Unlock()
	l.cancel(errLaneLost)
	for _, s := range l.sources {
		k.w.health.ok("the group of " + s.stream)
		k.w.health.ok("the progress of " + s.stream)
	}
	k.kick(l)
}

func (k *keeper) kick(l *lane) {
	for _, r := range l.node.readers {
		r.kick()
	}
}

func (k *keeper) renew(ctx context.Context) {
	good := true
	for _, group := range k.groups {
		var lanes []*lane
		var keys []string
		for _, l := range group {
			if l.state != free {
				lanes = append(lanes, l)
				keys = append(keys, l.lease)
			}
		}
		if len(keys) == 0 {
			continue
		}
		until := k.w.clock() + k.w.config.Lease // from before it is sent
		held, err := renew.Run(ctx, k.w.control, keys, k.w.id, k.w.config.Lease.Milliseconds()).Int64Slice()
		if err != nil || len(held) != len(lanes) {
			k.failed(ctx, "renewing leases", err)
			good = false
			continue
		}
		for i, l := range lanes {
			if held[i] == 1 {
				l.until.Store(int64(until))
				continue
			}
			k.w.log.Warn("lane lost: the lease is gone or another worker's", "lane", l.sources[plain].label)
			k.lose(l)
		}
	}
	if good {
		k.renewed = time.Now()
		k.w.health.ok("renewing leases")
	}
}

func (k *keeper) acquire(ctx context.Context, missing int) {
	for _, group := range k.groups {
		var lanes []*lane
		var keys []string
		for _, l := range group {
			if l.state == free {
				lanes = append(lanes, l)
				keys = append(keys, l.lease)
			}
		}
		if len(keys) == 0 || missing <= 0 {
			continue
		}
		until := k.w.clock() + k.w.config.Lease
		taken, err := acquire.Run(ctx, k.w.control, keys, k.w.id, k.w.config.Lease.Milliseconds(), missing).Int64Slice()
		if err != nil {
			k.failed(ctx, "acquiring leases", err)
			return
		}
		for _, i := range taken {
			if i >= 1 && int(i) <= len(lanes) {
				k.open(lanes[i-1], until)
				missing--
			}
		}
	}
	k.w.health.ok("acquiring leases")
}

// open begins to serve a lane.
func (k *keeper) open(l *lane, until time.Duration) {
	ctx, cancel := context.WithCancelCause(k.runs)
	l.cancel = cancel
	l.state = owned
	l.until.Store(int64(until))
	d := k.w.desk
	d.mu.Lock()
	for _, s := range l.sources {
		d.core.open(s, ctx)
	}
	d.mu.Unlock()
	k.kick(l)
}

// shed begins to hand over the lanes that are too many, or all when leaving.
func (k *keeper) shed() {
	surplus := k.count(owned) - k.target
	for _, l := range slices.Backward(k.lay.lanes) {
		if l.state != owned || (surplus <= 0 && !k.leaving) {
			continue
		}
		surplus--
		l.state = closing
		d := k.w.desk
		d.mu.Lock()
		for _, s := range l.sources {
			d.core.shut(s)
		}
		d.mu.Unlock()
		k.kick(l)
	}
}

// handOver gives up the closing lanes of which nothing is under way any more.
func (k *keeper) handOver(ctx context.Context) {
	for _, group := range k.groups {
		var lanes []*lane
		for _, l := range group {
			if l.state == closing && k.w.desk.still(l) {
				lanes = append(lanes, l)
			}
		}
		k.giveUp(ctx, lanes)
	}
}

// giveUp releases lanes of one group of keys.
func (k *keeper) giveUp(ctx context.Context, lanes []*lane) {
	if len(lanes) == 0 {
		return
	}
	var keys []string
	for _, l := range lanes {
		keys = append(keys, l.lease)
		if err := k.handBack(ctx, l); err != nil {
			k.failed(ctx, "handing entries back", err) // the next owner takes them for a crashed worker's
		} else {
			k.w.health.ok("handing entries back")
		}
		k.lose(l)
	}
	if err := release.Run(ctx, k.w.control, keys, k.w.id).Err(); err != nil {
		k.failed(ctx, "releasing leases", err) // they end by themselves
	} else {
		k.w.health.ok("releasing leases")
	}
}

// leave hands all lanes over. It returns when that is done, or when ctx ends,
// whether or not listeners still run; their leases are then released all the same.
func (k *keeper) leave(ctx context.Context) {
	k.leaving = true
	k.target = 0
	key := wire.WorkersKey(k.w.config.Prefix, k.w.config.Group)
	if err := k.w.control.HDel(ctx, key, k.w.id).Err(); err != nil {
		k.failed(ctx, "the list of workers", err) // the entry ends by itself
	}
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		k.step(ctx)
		if k.count(owned)+k.count(closing) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-k.w.quiet:
		case <-ctx.Done():
			return
		}
	}
}

// checkStill tells the keeper of a source that is to be handed over and has become
// still. It is called with the desk's mutex held.
func (w *Worker) checkStill(s *source) {
	if s.open || !s.still() {
		return
	}
	select {
	case w.quiet <- struct{}{}:
	default:
	}
}

// failed notes an error, but for the one that the worker's own end makes.
func (k *keeper) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		k.w.health.fail(what, err)
	}
}
