package replay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// A keeper holds this worker's share of the lanes: it renews their leases, takes
// free ones, and hands lanes over when there are more workers.
type keeper struct {
	w       *Worker
	lay     *layout
	groups  [][]*lane       // lanes whose keys may be in one script
	every   time.Duration   // between steps
	pulse   time.Duration   // between looks at who is there
	runs    context.Context // of the listeners; ends when their time is up at shutdown
	fellows *fellows        // the group's workers
	target  int             // lanes this worker should hold
	sought  time.Time       // when lanes were last to be had
	renewed time.Time
	swept   time.Time
	met     bool // the share is known
	leaving bool
}

var errLaneLost = errors.New("replay: the lease of the lane has ended")

func newKeeper(w *Worker, lay *layout, runs context.Context) *keeper {
	k := &keeper{
		w: w, lay: lay, runs: runs, fellows: newFellows(w), swept: time.Now(),
		every: w.config.Lease / 10, pulse: max(10*time.Millisecond, min(w.config.Lease/50, 100*time.Millisecond)),
	}
	w.missing.Store(1) // until the share is known
	for _, n := range lay.nodes {
		k.groups = append(k.groups, n.lanes)
	}
	return k
}

// run keeps the lanes until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick, pulse := time.NewTicker(k.every), time.NewTicker(k.pulse)
	defer tick.Stop()
	defer pulse.Stop()
	for {
		k.step(ctx)
		for due := false; !due; {
			select {
			case <-tick.C:
				due = true
			case <-k.w.quiet:
				due = true
			case <-pulse.C:
				due = k.look(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
}

// look takes lanes that others have just given up, and reports whether workers
// have come or gone, which is for a step to see to. A lane that changes hands is
// without an owner for about as long as it is until the next look.
func (k *keeper) look(ctx context.Context) (changed bool) {
	ctx, cancel := k.bound(ctx)
	defer cancel()
	if k.target > k.count(owned) && time.Since(k.sought) < sweepAfter*k.every {
		k.acquire(ctx, k.target-k.count(owned))
		k.tell()
	}
	n, err := k.w.control.HLen(ctx, k.fellows.key).Result()
	return err == nil && int(n) != k.fellows.live
}

// bound returns a context that ends when the first of the leases is about to: by
// then the keeper must see to that, whatever it has asked of Redis.
func (k *keeper) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	left := k.w.config.Lease
	now := k.w.clock()
	for _, l := range k.lay.lanes {
		if l.state != free {
			left = min(left, time.Duration(l.until.Load())-now-k.every)
		}
	}
	return context.WithTimeout(ctx, left)
}

// step does once what is due.
func (k *keeper) step(ctx context.Context) {
	k.lapse()
	ctx, cancel := k.bound(ctx)
	defer cancel()
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
	k.tell()
	if time.Since(k.swept) >= sweepAfter*k.w.config.Lease && !k.leaving {
		k.swept = time.Now()
		k.sweep(ctx)
	}
	k.w.metrics.inHand.Set(float64(k.w.desk.inHand()))
	k.w.metrics.lanes.Set(float64(k.count(owned) + k.count(closing)))
}

// tell tells Ready how many lanes of the share are not held.
func (k *keeper) tell() {
	if k.met {
		k.w.missing.Store(int32(max(0, k.target-k.count(owned))))
	}
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
	live, err := k.fellows.meet(ctx, k.count(owned)+k.count(closing))
	if err != nil {
		k.failed(ctx, "the list of workers", err)
		return
	}
	k.w.health.ok("the list of workers")
	rank := slices.Index(live, k.w.id)
	if rank < 0 {
		return
	}
	k.met = true
	before := k.target
	k.target = len(k.lay.lanes) / len(live)
	if rank < len(k.lay.lanes)%len(live) {
		k.target++
	}
	if k.target > before {
		k.sought = time.Now()
	}
}

// lapse takes the consequences for lanes whose lease has ended, or would before
// the next step.
func (k *keeper) lapse() {
	now := k.w.clock()
	var lost []string
	for _, l := range k.lay.lanes {
		if l.state != free && !l.valid(now+k.every) {
			lost = append(lost, l.sources[plain].label)
			k.lose(l)
		}
	}
	k.lostLanes("lanes lost: their leases were not renewed in time", lost)
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

// lostLanes logs which lanes were lost, in one line however many they are.
func (k *keeper) lostLanes(text string, lanes []string) {
	if len(lanes) > 0 {
		k.w.metrics.leasesLost.Add(float64(len(lanes)))
		k.w.lapses.log(k.w.log, slog.LevelWarn, text, slog.Int("lanes", len(lanes)), slog.Any("first", lanes[:min(len(lanes), 8)]))
	}
}

func (k *keeper) kick(l *lane) {
	for _, r := range l.node.readers {
		r.kick()
	}
}

func (k *keeper) renew(ctx context.Context) {
	good := true
	var lost []string
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
			lost = append(lost, l.sources[plain].label)
			k.lose(l)
		}
	}
	k.lostLanes("lanes lost: their leases are gone or another worker's", lost)
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
				k.sought = time.Now()
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

// giveUp hands lanes of one group of keys over, to whoever takes them.
func (k *keeper) giveUp(ctx context.Context, lanes []*lane) {
	if len(lanes) == 0 {
		return
	}
	err := k.handBack(ctx, lanes)
	for _, l := range lanes {
		k.lose(l)
	}
	if err == nil {
		k.w.health.ok("handing lanes over")
		return
	}
	k.failed(ctx, "handing lanes over", err) // the next owner takes their entries for a crashed worker's
	var keys []string
	for _, l := range lanes {
		keys = append(keys, l.lease)
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
	k.shed() // before anything that may take time
	if err := k.w.control.HDel(ctx, k.fellows.key, k.w.id).Err(); err != nil {
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
	if !errors.Is(ctx.Err(), context.Canceled) {
		k.w.health.fail(what, err)
	}
}
