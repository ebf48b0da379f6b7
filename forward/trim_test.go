package forward_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A trimming is a shard whose streams are filled by hand, and whose owner looks at
// them when it is told to.
type trimming struct {
	t    *testing.T
	rdb  *redis.Client
	cfg  forward.Config
	keys wire.Shard
	reg  *prometheus.Registry
	log  lockedBuffer
}

func newTrimming(t *testing.T, rdb *redis.Client) *trimming {
	t.Helper()
	tr := &trimming{t: t, rdb: rdb, cfg: config(redistest.Prefix(t)), reg: prometheus.NewRegistry()}
	tr.keys = wire.NewShard(tr.cfg.Prefix, 0, 1)
	tr.cfg.Metrics, tr.cfg.Logger = tr.reg, tr.log.logger()
	return tr
}

// fill appends n entries to a lane's stream, seconds old at most, 500 of them to a
// millisecond.
func (tr *trimming) fill(lane, n int, seconds int64) {
	tr.t.Helper()
	now, err := tr.rdb.Time(tr.t.Context()).Result()
	if err != nil {
		tr.t.Fatal(err)
	}
	_, err = tr.rdb.Pipelined(tr.t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.XAdd(tr.t.Context(), &redis.XAddArgs{
				Stream: tr.keys.Stream(lane), ID: fmt.Sprintf("%d-%d", now.UnixMilli()-seconds*1000+int64(i/500), i), Values: []any{"event", "X", "payload", strings.Repeat("x", i%50)},
			})
		}
		return nil
	})
	if err != nil {
		tr.t.Fatal(err)
	}
}

// group makes a group that has read a number of a lane's entries, and acknowledged
// all of them but each for which keep is true.
func (tr *trimming) group(name string, lane, read int, keep func(i int) bool) {
	tr.t.Helper()
	ctx, key := tr.t.Context(), tr.keys.Stream(lane)
	if err := tr.rdb.XGroupCreateMkStream(ctx, key, name, "0").Err(); err != nil {
		tr.t.Fatal(err)
	}
	if read == 0 {
		return
	}
	got, err := tr.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: name, Consumer: "c", Streams: []string{key, ">"}, Count: int64(read)}).Result()
	if err != nil {
		tr.t.Fatal(err)
	}
	_, err = tr.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, m := range got[0].Messages {
			if !keep(i) {
				p.XAck(ctx, key, name, m.ID)
			}
		}
		return nil
	})
	if err != nil {
		tr.t.Fatal(err)
	}
}

func none(int) bool  { return false }
func every(int) bool { return true }

// serve has a worker of a group live for so long.
func (tr *trimming) serve(group string, d time.Duration) {
	about := fmt.Sprintf(`{"until":%d,"consumer":"w"}`, time.Now().Add(d).UnixMilli())
	if err := tr.rdb.HSet(tr.t.Context(), wire.WorkersKey(tr.cfg.Prefix, group), "w", about).Err(); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trimming) trimmer(said string) *forward.Trimmer {
	tr.t.Helper()
	trimmer, err := forward.NewTrimmer(tr.rdb, tr.cfg, said)
	if err != nil {
		tr.t.Fatal(err)
	}
	return trimmer
}

// pass has the owner look once.
func (tr *trimming) pass(trimmer *forward.Trimmer) {
	tr.t.Helper()
	if err := trimmer.Pass(tr.t.Context()); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trimming) ids(lane int) []string {
	tr.t.Helper()
	all, err := tr.rdb.XRange(tr.t.Context(), tr.keys.Stream(lane), "-", "+").Result()
	if err != nil {
		tr.t.Fatal(err)
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids
}

// value returns a metric of shard 0, of a group if one is named. ok is false if
// there is none.
func (tr *trimming) value(name, group string) (n float64, ok bool) {
	tr.t.Helper()
	families, err := tr.reg.Gather()
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "sluice_forward_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "group" {
					of = l.GetValue()
				}
			}
			if of == group {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// TestTrimmingTells cuts streams with groups that stand anywhere, and compares what
// is told of each with what has really gone.
func TestTrimmingTells(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"3", "10", "100"} {
		t.Run(node+" entries a node", func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t, "--stream-node-max-entries", node).Client(t)
			for seed := range uint64(12) {
				r := rand.New(rand.NewPCG(seed, 1))
				tr := newTrimming(t, rdb)
				n := 1200 + r.IntN(300)
				tr.cfg.MaxLength = int64(1000 + r.IntN(n-1000))
				if seed%3 == 0 {
					tr.cfg.MaxLength = 1
				}
				tr.fill(0, n, 1)
				for g := range 4 {
					chance := r.Float64()
					tr.group("g"+strconv.Itoa(g), 0, []int{0, r.IntN(n + 1), n, r.IntN(n-1000) + 1}[g], func(int) bool { return r.Float64() < chance })
				}
				// One that began with a time, as replay.start has it.
				before := tr.ids(0)
				ms, _, _ := strings.Cut(before[0], "-")
				if err := rdb.XGroupCreate(t.Context(), tr.keys.Stream(0), "timed", ms+"-18446744073709551615").Err(); err != nil {
					t.Fatal(err)
				}
				type counts struct{ Unread, Unacked int }
				want := map[string]counts{}
				last, pending := map[string]string{}, map[string]map[string]bool{}
				for _, g := range rdb.XInfoGroups(t.Context(), tr.keys.Stream(0)).Val() {
					last[g.Name], pending[g.Name] = g.LastDeliveredID, map[string]bool{}
					for _, p := range rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: tr.keys.Stream(0), Group: g.Name, Start: "-", End: "+", Count: 1e6}).Val() {
						pending[g.Name][p.ID] = true
					}
				}
				trimmer := tr.trimmer("")
				tr.pass(trimmer)
				after := tr.ids(0)
				if int64(len(after)) > tr.cfg.MaxLength || (len(after) == 0 && tr.cfg.MaxLength > 1) {
					t.Errorf("seed %d: %d entries are left of %d, with a bound of %d", seed, len(after), n, tr.cfg.MaxLength)
				}
				position := func(id string) string { // in the order of ids
					ms, seq, _ := strings.Cut(id, "-")
					return fmt.Sprintf("%020s-%020s", ms, seq)
				}
				for _, id := range before[:len(before)-len(after)] {
					for g := range last {
						c := want[g]
						switch {
						case pending[g][id]:
							c.Unacked++
						case position(id) > position(last[g]):
							c.Unread++
						}
						want[g] = c
					}
				}
				got, noted := map[string]counts{}, map[string]counts{}
				notes := rdb.HGetAll(t.Context(), tr.keys.Groups()).Val()
				for g := range last {
					unread, _ := tr.value("trimmed_unread_total", g)
					unacked, _ := tr.value("trimmed_unacked_total", g)
					got[g] = counts{int(unread), int(unacked)}
					var c counts
					c.Unread, _ = strconv.Atoi(notes[wire.GroupUnread+g])
					c.Unacked, _ = strconv.Atoi(notes[wire.GroupUnacked+g])
					noted[g] = c
					if _, ok := want[g]; !ok {
						want[g] = counts{}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("seed %d: what is counted is not what has gone:\n%s", seed, diff)
				}
				if diff := cmp.Diff(want, noted); diff != "" {
					t.Errorf("seed %d: what is noted is not what has gone:\n%s", seed, diff)
				}
			}
		})
	}
}

// TestTrimmingTakesAcknowledgedFirst is over a bound because of what everybody has
// had: nothing else goes, however young that is and whichever stream it is in.
func TestTrimmingTakesAcknowledgedFirst(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.cfg.MaxLength = 1000
	tr.fill(0, 900, 1)
	tr.group("g", 0, 900, none)
	tr.fill(1, 700, 1)
	tr.group("g", 1, 100, every)
	tr.pass(tr.trimmer(""))
	if had, behind := len(tr.ids(0)), len(tr.ids(1)); had != 0 || behind != 700 {
		t.Errorf("%d entries that were acknowledged and %d that were not are left, want 0 and 700", had, behind)
	}
	if n, ok := tr.value("trimmed_unacked_total", "g"); n != 0 || !ok {
		t.Errorf("%v entries counted as lost", n)
	}
}

// TestVanishedEntriesHoldNothing has a group with pending entries that are no
// longer in the stream.
func TestVanishedEntriesHoldNothing(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.fill(0, 300, 3600)
	tr.group("g", 0, 200, func(i int) bool { return i < 50 || i == 150 })
	if err := tr.rdb.XTrimMinID(t.Context(), tr.keys.Stream(0), tr.ids(0)[60]).Err(); err != nil {
		t.Fatal(err)
	}
	tr.pass(tr.trimmer(""))
	if n := len(tr.ids(0)); n != 150 {
		t.Errorf("%d entries are left, want the 150 from the one that is pending", n)
	}
}

// TestAbandonedGroup has a group without a worker beside one that is served.
func TestAbandonedGroup(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.cfg.AbandonAfter = time.Hour
	tr.fill(0, 500, 3600)
	tr.group("served", 0, 500, none)
	tr.serve("served", time.Hour)
	tr.group("left", 0, 200, func(i int) bool { return i >= 190 })
	unserved := func(d time.Duration) {
		t.Helper()
		if err := tr.rdb.HSet(t.Context(), tr.keys.Groups(), wire.GroupServed+"left", time.Now().Add(-d).UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		unserved time.Duration
		left     int
		abandons float64
		says     string
	}{
		{10 * time.Second, 310, 0, ""}, // its worker is being restarted
		{10 * time.Minute, 310, 0, "no worker serves the group; entries are kept for it"},
		{2 * time.Hour, 0, 1, "group is abandoned"},
	} {
		unserved(step.unserved)
		trimmer := tr.trimmer("")
		tr.pass(trimmer)
		tr.pass(trimmer)
		if n := len(tr.ids(0)); n != step.left {
			t.Errorf("unserved for %v: %d entries are left, want %d", step.unserved, n, step.left)
		}
		since, _ := tr.value("group_unserved_seconds", "left")
		if d := time.Duration(since) * time.Second; d < step.unserved-time.Second || d > step.unserved+time.Minute {
			t.Errorf("unserved for %v, by the metric for %v", step.unserved, d)
		}
		if n, _ := tr.value("group_abandoned", "left"); n != step.abandons {
			t.Errorf("unserved for %v: abandoned is %v", step.unserved, n)
		}
		if log := tr.log.String(); step.says != "" && strings.Count(log, step.says) != 1 || step.says == "" && log != "" {
			t.Errorf("unserved for %v, the log is\n%s", step.unserved, log)
		}
	}
	unread, _ := tr.value("trimmed_unread_total", "left")
	unacked, _ := tr.value("trimmed_unacked_total", "left")
	if unread != 300 || unacked != 10 {
		t.Errorf("%v entries unread and %v unacked have gone for the abandoned group, want 300 and 10", unread, unacked)
	}
	if strings.Contains(tr.log.String(), "level=ERROR") {
		t.Errorf("what an abandoned group loses is logged as if somebody minded:\n%s", tr.log.String())
	}

	// A worker comes back.
	tr.serve("left", time.Hour)
	tr.pass(tr.trimmer(""))
	if n, _ := tr.value("group_abandoned", "left"); n != 0 {
		t.Errorf("a group that is served is abandoned")
	}
	served, err := tr.rdb.HGet(t.Context(), tr.keys.Groups(), wire.GroupServed+"left").Int64()
	if err != nil || time.Since(time.UnixMilli(served)) > time.Minute {
		t.Errorf("served is noted as %v, %v", served, err)
	}

	// The group is removed: nothing is known of it any more.
	if err := tr.rdb.XGroupDestroy(t.Context(), tr.keys.Stream(0), "left").Err(); err != nil {
		t.Fatal(err)
	}
	trimmer := tr.trimmer("")
	tr.pass(trimmer)
	for field := range tr.rdb.HGetAll(t.Context(), tr.keys.Groups()).Val() {
		if strings.HasSuffix(field, ":left") {
			t.Errorf("%s is still noted", field)
		}
	}
	if _, ok := tr.value("group_pending", "left"); ok {
		t.Error("a group that is gone has metrics")
	}
	trimmer.End()
	if _, ok := tr.value("group_pending", "served"); ok {
		t.Error("who no longer owns the shard tells of its groups")
	}
}

// TestAloneAbandonedGroup is the only one of a stream: only the hard bounds apply.
func TestAloneAbandonedGroup(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.cfg.AbandonAfter = time.Millisecond
	tr.fill(0, 500, 3600)
	tr.group("left", 0, 200, none)
	trimmer := tr.trimmer("")
	tr.pass(trimmer)
	eventually(t, "the group is abandoned", func() bool {
		tr.pass(trimmer)
		n, _ := tr.value("group_abandoned", "left")
		return n == 1
	})
	if n := len(tr.ids(0)); n != 500 && n != 300 { // 300: before it was abandoned
		t.Errorf("%d entries are left", n)
	}
	tr.fill(0, 100, 1800)
	tr.pass(trimmer)
	if n := len(tr.ids(0)); n != 600 && n != 400 {
		t.Errorf("%d entries are left", n)
	}
}

func TestGroupStandings(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.fill(0, 300, 100)
	tr.fill(1, 50, 10)
	tr.group("g", 0, 200, func(i int) bool { return i%2 == 0 })
	tr.group("g", 1, 50, none)
	tr.group("fresh", 1, 0, none)
	tr.serve("g", time.Hour)
	tr.pass(tr.trimmer(""))
	for _, test := range []struct {
		name, group string
		least, most float64
	}{
		{"stream_length", "", 350, 350},
		{"group_lag_entries", "g", 100, 100},
		{"group_lag_entries", "fresh", 50, 50},
		{"group_lag_seconds", "g", 100, 130},
		{"group_lag_seconds", "fresh", 10, 40},
		{"group_pending", "g", 100, 100},
		{"group_oldest_pending_seconds", "g", 100, 130},
		{"group_pending", "fresh", 0, 0},
		{"group_oldest_pending_seconds", "fresh", 0, 0},
		{"trimmed_unread_total", "g", 0, 0},
	} {
		n, ok := tr.value(test.name, test.group)
		if !ok || n < test.least || n > test.most {
			t.Errorf("%s of %q is %v, %v, want %v to %v", test.name, test.group, n, ok, test.least, test.most)
		}
	}
}

// TestTrimmingManyEntries takes more than one call of the script does.
func TestTrimmingManyEntries(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.cfg.MaxLength = 1000
	tr.fill(0, 25_000, 1)
	tr.group("g", 0, 12_000, every)
	tr.pass(tr.trimmer(""))
	unread, _ := tr.value("trimmed_unread_total", "g")
	unacked, _ := tr.value("trimmed_unacked_total", "g")
	if n := len(tr.ids(0)); n != 1000 || unread != 12_000 || unacked != 12_000 {
		t.Errorf("%d entries are left, %v have gone unread and %v unacked; want 1000, 12000 and 12000", n, unread, unacked)
	}
	if log := tr.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "unread=12000 unacked=12000") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestTrimmingLogsSparingly loses entries at each look: it is said once, and
// counted.
func TestTrimmingLogsSparingly(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	tr.cfg.MaxLength = 10
	trimmer := tr.trimmer("")
	tr.fill(0, 10, 1000)
	tr.group("g", 0, 0, none)
	for i := range int64(20) {
		tr.fill(0, 10, 900-i)
		tr.pass(trimmer)
	}
	if n, _ := tr.value("trimmed_unread_total", "g"); n != 200 {
		t.Errorf("%v entries are counted, want 200", n)
	}
	if n := strings.Count(tr.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines are logged, want 1:\n%s", n, tr.log.String())
	}
	// Another owner counts on.
	tr.fill(0, 10, 800)
	tr.pass(tr.trimmer(""))
	if n, err := tr.rdb.HGet(t.Context(), tr.keys.Groups(), wire.GroupUnread+"g").Int(); n != 210 || err != nil {
		t.Errorf("%d entries are noted, %v, want 210", n, err)
	}
}

// TestTrimmingWithoutMemory has Redis out of memory: what everybody has
// acknowledged goes though it is young, the bounds are kept, and what that takes is
// noted all the same.
func TestTrimmingWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	tr := newTrimming(t, server.Client(t))
	tr.cfg.MaxLength = 1000
	tr.fill(0, 3000, 1)
	tr.group("g", 0, 500, none)
	tr.fill(1, 300, 1)
	tr.group("g", 1, 300, none)
	trimmer := tr.trimmer("OOM command not allowed when used memory > 'maxmemory'.")
	if err := tr.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	tr.pass(trimmer)
	if had, behind := len(tr.ids(1)), len(tr.ids(0)); had != 0 || behind != 1000 {
		t.Errorf("%d acknowledged entries are left and %d others, want 0 and 1000", had, behind)
	}
	counted, _ := tr.value("trimmed_unread_total", "g")
	noted, err := tr.rdb.HGet(t.Context(), tr.keys.Groups(), wire.GroupUnread+"g").Int()
	if counted != 1500 || noted != 1500 || err != nil {
		t.Errorf("%v entries are counted and %d noted, %v, want 1500", counted, noted, err)
	}
}

// TestTrimmingMakesRoom fills Redis with entries that everybody has acknowledged:
// commits stall, and flow again without anybody's help.
func TestTrimmingMakesRoom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, cfg := server.Client(t), config(redistest.Prefix(t))
	cfg.TrimEvery = 20 * time.Millisecond
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	var log lockedBuffer
	cfg.Logger = log.logger()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cfg.DrainTimeout = time.Second
	err := forward.Hold(ctx, rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if err := take(ready("s")); err != nil {
			return err
		}
		for seq := int64(2); seq <= 500; seq++ {
			if err := take(message("s", seq, int(seq%50), strings.Repeat("x", 5000))); err != nil {
				return err
			}
		}
		if err := settled(ctx, h, 500); err != nil {
			return err
		}
		for lane := range lanes {
			key := keys.Stream(lane)
			last := rdb.XInfoStream(ctx, key).Val().LastGeneratedID
			if err := rdb.XGroupCreate(ctx, key, "g", last).Err(); err != nil {
				return err
			}
		}
		used, err := strconv.Atoi(rdb.InfoMap(ctx, "memory").Item("Memory", "used_memory"))
		if err != nil {
			return err
		}
		if err := rdb.ConfigSet(ctx, "maxmemory", strconv.Itoa(used-500_000)).Err(); err != nil {
			return err
		}
		for seq := int64(501); seq <= 520; seq++ {
			if err := take(message("s", seq, int(seq%50), strings.Repeat("x", 5000))); err != nil {
				return err
			}
		}
		return settled(ctx, h, 520)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "commits flow again") {
		t.Errorf("Redis was never full:\n%s", log.String())
	}
}

// TestMetricsOfTheWay has dispatches go the whole way.
func TestMetricsOfTheWay(t *testing.T) {
	t.Parallel()
	tr := newTrimming(t, redistest.Client(t))
	var waiting float64
	err := forward.Hold(t.Context(), tr.rdb, tr.cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		for seq := int64(1); seq <= 500; seq++ {
			d := ready("s")
			if seq > 1 {
				d = message("s", seq, 1, "x")
			}
			if err := take(d); err != nil {
				return err
			}
			n, _ := tr.value("spool_bytes", "")
			waiting = max(waiting, n)
		}
		return settled(ctx, h, 500)
	})
	if err != nil {
		t.Fatal(err)
	}
	if waiting == 0 {
		t.Error("nothing was ever in the spool")
	}
	for name, want := range map[string]float64{"spool_bytes": 0, "dispatch_received_total": 500, "published_total": 500, "shed_total": 0} {
		if n, ok := tr.value(name, ""); n != want || !ok {
			t.Errorf("%s is %v, %v, want %v", name, n, ok, want)
		}
	}
	families, err := tr.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "sluice_forward_publish_seconds" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() == 0 || h.GetSampleSum() < 0 || h.GetSampleSum() > 60*float64(h.GetSampleCount()) {
				t.Errorf("publish_seconds: %d batches in %v s", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("publish_seconds is not there")
}
