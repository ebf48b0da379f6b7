package replay_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluicehq/sluice/replay"
)

// take takes all tasks there are and returns them as id/listener.
func take(c *replay.Core) (tasks []replay.Task, names []string) {
	for {
		t, ok := c.Next()
		if !ok {
			return tasks, names
		}
		tasks = append(tasks, t)
		names = append(names, fmt.Sprintf("%d/%s", t.ID(), t.Listener()))
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if a, b := fmt.Sprint(got), fmt.Sprint(want); a != b {
		t.Errorf("%s = %s, want %s", what, a, b)
	}
}

func TestCoreOrder(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(2, 0)
	c.Offer(1, "a", false, false)
	c.Offer(2, "a", false, false)
	c.Offer(3, "b", false, false)
	tasks, names := take(c)
	equal(t, "first tasks", names, "[1/l0 1/l1 3/l0 3/l1]")
	// One listener goes on while the other fails.
	if c.Finish(tasks[0], "succeeded") {
		t.Error("acked while a listener has not ended")
	}
	c.Finish(tasks[1], "retry")
	_, names = take(c)
	equal(t, "tasks behind a failure", names, "[2/l0]")
	c.Wake(tasks[1])
	again, names := take(c)
	equal(t, "tasks after the wait", names, "[1/l1]")
	equal(t, "attempt", again[0].Attempt(), 2)
	if !c.Finish(again[0], "succeeded") {
		t.Error("not acked when all listeners have ended")
	}
	_, names = take(c)
	equal(t, "tasks behind it", names, "[2/l1]")
}

func TestCoreUnorderedDoesNotWait(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(0, 1)
	for id := range uint64(3) {
		c.Offer(id+1, "a", false, false)
	}
	_, names := take(c)
	equal(t, "tasks", names, "[1/l0 2/l0 3/l0]")
}

func TestCoreGivenUpIsToBeADeadLetter(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(2, 0)
	c.Offer(1, "a", false, false)
	tasks, _ := take(c)
	for i, how := range []string{"gaveUp", "succeeded"} {
		if c.Finish(tasks[i], how) {
			t.Errorf("acked after %s, want it to be a dead letter", how)
		}
	}
	equal(t, "offered again", c.Offer(1, "a", false, false), "known")
	inHand, known, keys, _, _, unacked := c.Left()
	equal(t, "in hand, known, keys, unacked", []int{inHand, known, keys, unacked}, "[0 1 0 1]")
	c.Drop()
	_, _, _, _, _, unacked = c.Left()
	equal(t, "unacked when the lane is lost", unacked, 0)
	c.Open()
	equal(t, "offered to the next owner", c.Offer(1, "a", false, false), "taken")
	tasks, _ = take(c)
	for _, task := range tasks {
		c.Finish(task, "gaveUp")
	}
	c.Buried(1)
	_, known, _, _, _, unacked = c.Left()
	equal(t, "known, unacked when it is one", []int{known, unacked}, "[0 0]")
}

// A suspect runs when no other is in hand, behind what is before it; its key's
// entries wait, others do not.
func TestCoreSuspectsRunAlone(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(1, 0)
	equal(t, "an innocent before", c.Offer(1, "a", false, false), "taken")
	equal(t, "a suspect", c.OfferSuspect(2, "a", false), "skipped")
	equal(t, "the suspect again", c.OfferSuspect(2, "a", false), "known")
	equal(t, "one behind it", c.Offer(3, "a", false, false), "skipped")
	equal(t, "another suspect", c.OfferSuspect(4, "b", false), "skipped")
	equal(t, "another key", c.Offer(5, "c", false, false), "taken")
	ids, _ := c.Wanted()
	equal(t, "wanted while 1 is in hand", ids, "[4]") // has the place now
	equal(t, "the suspect whose turn has come", c.OfferSuspect(4, "b", true), "taken")
	c.Unskip(4)
	c.Release()
	tasks, names := take(c)
	equal(t, "tasks", names, "[1/l0 5/l0 4/l0]")
	c.Finish(tasks[0], "succeeded")
	ids, _ = c.Wanted()
	equal(t, "wanted while a suspect is in hand", ids, "[]")
	c.Finish(tasks[2], "retry") // it has run, and kills nothing; but Redis has it as a suspect
	equal(t, "readers told before it is moved", c.Told(), 0)
	c.Moved(tasks[2])
	equal(t, "readers told", c.Told(), 1)
	ids, _ = c.Wanted()
	equal(t, "wanted then", ids, "[2]")
	c.Release() // it was acked meanwhile
	c.Unskip(2)
	ids, _ = c.Wanted()
	equal(t, "wanted behind it", ids, "[3]")
}

func TestCoreGathersBatches(t *testing.T) {
	t.Parallel()
	c := replay.NewBatchCore(3)
	for id := range uint64(2) {
		c.Offer(id+1, "a", false, false)
	}
	_, names := take(c)
	equal(t, "tasks of a batch that is not whole", names, "[]")
	c.Offer(3, "b", false, false)
	c.Offer(4, "b", false, false)
	batch, ok := c.NextBatch()
	equal(t, "whole batch", fmt.Sprint(batch, ok), "[1 2 3] true")
	_, ok = c.NextBatch()
	equal(t, "another one", ok, false)
	for id := range uint64(replay.Places) {
		c.Offer(id+5, "b", false, false)
	}
	n := 0
	for {
		batch, ok := c.NextBatch()
		if !ok {
			break
		}
		n += len(batch)
	}
	equal(t, "tasks run when places are short", n, replay.Places-1) // 3 runs, and 4 is among them
	c.Drop()
	c.Open()
	c.Offer(40, "c", false, false)
	c.Drop()
	c.Open()
	for id := range uint64(3) {
		c.Offer(id+50, "c", false, false)
	}
	batch, _ = c.NextBatch()
	equal(t, "batch after a lost one", batch, "[50 51 52]")
}

func TestCorePlaces(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(1, 0)
	for id := range uint64(replay.Places) {
		equal(t, "verdict", c.Offer(id+1, "a", false, false), "taken")
	}
	equal(t, "patiently", c.Offer(17, "a", false, true), "crowded")
	equal(t, "17th", c.Offer(17, "a", false, false), "skipped")
	equal(t, "another key", c.Offer(18, "b", false, false), "taken")
	equal(t, "19th", c.Offer(19, "a", false, true), "skipped")
	equal(t, "17th again", c.Offer(17, "a", false, false), "known")
	ids, scan := c.Wanted()
	equal(t, "wanted while full", fmt.Sprint(ids, scan), "[] false")
	var acked []uint64
	for range replay.Places {
		tasks, _ := take(c)
		for _, task := range tasks {
			c.Finish(task, "succeeded")
			acked = append(acked, task.ID())
		}
	}
	equal(t, "ended in order", slices.IsSorted(acked[:2]), true)
	ids, _ = c.Wanted()
	equal(t, "wanted", ids, "[17 19]")
	equal(t, "a new one does not overtake", c.Offer(20, "a", false, false), "skipped")
	equal(t, "17th wanted", c.Offer(17, "a", true, false), "taken")
	c.Unskip(17, 19) // 19 was no longer there
	ids, _ = c.Wanted()
	equal(t, "wanted then", ids, "[20]")
	c.Offer(20, "a", true, false)
	c.Unskip(20)
	equal(t, "21st", c.Offer(21, "a", false, false), "taken")
}

func TestCoreLaneLostAndBack(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(2, 0)
	c.Offer(1, "a", false, false)
	c.Offer(2, "a", false, false)
	first, ok := c.Next() // l0 runs for 1; l1 is queued
	if !ok {
		t.Fatal("no task")
	}
	c.Drop()
	_, names := take(c)
	equal(t, "tasks of a lost lane", names, "[]")
	equal(t, "offered to a lost lane", c.Offer(3, "a", false, false), "refused")
	c.Open()
	equal(t, "1 offered again", c.Offer(1, "a", false, false), "known")
	equal(t, "2 offered again", c.Offer(2, "a", false, false), "taken")
	tasks, names := take(c)
	equal(t, "tasks while l0 still runs for 1", names, "[1/l1]")
	c.Finish(first, "succeeded")
	if !c.Finish(tasks[0], "succeeded") {
		t.Error("1 is not acked")
	}
	_, names = take(c)
	equal(t, "tasks then", names, "[2/l0 2/l1]")
}

func TestCoreForgetsWhatALostLaneLeaves(t *testing.T) {
	t.Parallel()
	c := replay.NewCore(2, 0)
	c.Offer(1, "a", false, false)
	task, _ := c.Next()
	c.Drop()
	if c.Finish(task, "succeeded") {
		t.Error("acked though a listener has not run")
	}
	c.Next() // finds the unit of the listener that has not run without a task
	inHand, known, keys, blocked, running, unacked := c.Left()
	equal(t, "left", []int{inHand, known, keys, blocked, running, unacked}, "[0 0 0 0 0 0]")
}

// TestCoreAtRandom plays a worker at random, with lanes lost and coming back, and
// checks that order and bounds hold and that in the end everything is acked.
func TestCoreAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			play(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

type world struct {
	t       *testing.T
	c       *replay.Core
	keys    []string // of entry i+1
	acked   []bool
	read    int               // entries read so far
	ended   map[string]uint64 // the last entry by listener and key
	had     map[string]bool   // listeners that have ended, by entry
	running []replay.Task
	waiting []replay.Task
	confirm []uint64
}

func play(t *testing.T, r *rand.Rand) {
	const listeners = 2
	n := 200 + r.IntN(3*replay.MaxSkipped)
	w := &world{t: t, c: replay.NewCore(listeners, 0), ended: map[string]uint64{}, had: map[string]bool{}}
	for range n {
		w.keys = append(w.keys, fmt.Sprint("k", min(r.IntN(8), r.IntN(8), r.IntN(8))))
	}
	w.acked = make([]bool, n+1)
	quiet := false
	for step := 0; ; step++ {
		if step > 40*n {
			quiet = true // it has had its adventures
		}
		if step > 80*n+100000 {
			t.Fatalf("not done after %d steps; left: %s", step, fmt.Sprint(w.c.Left()))
		}
		switch k := r.IntN(100); {
		case k < 20 && w.read < n:
			for range 1 + r.IntN(100) {
				if w.read < n {
					w.read++
					w.c.Offer(uint64(w.read), w.keys[w.read-1], false, false)
				}
			}
		case k < 60:
			for range 1 + r.IntN(8) {
				if task, ok := w.c.Next(); ok {
					w.start(task)
				}
			}
		case k < 85 && len(w.running) > 0:
			for range min(1+r.IntN(8), len(w.running)) {
				i := r.IntN(len(w.running))
				task := w.running[i]
				w.running = slices.Delete(w.running, i, i+1)
				if !quiet && r.IntN(10) == 0 {
					w.c.Finish(task, "retry")
					w.waiting = append(w.waiting, task)
					continue
				}
				w.ended[task.Listener()+task.Key()] = max(w.ended[task.Listener()+task.Key()], task.ID())
				w.had[fmt.Sprint(task.ID(), task.Listener())] = true
				if w.c.Finish(task, "succeeded") {
					w.acked[task.ID()] = true
					w.confirm = append(w.confirm, task.ID())
				}
			}
		case k < 90:
			for _, task := range w.waiting {
				w.c.Wake(task)
			}
			w.waiting = nil
		case k < 92:
			w.c.Acked(w.confirm...)
			w.confirm = nil
		case k < 98:
			w.reread()
		case k == 99 && !quiet && r.IntN(20) == 0:
			w.c.Drop()
			w.waiting = nil
			w.c.Open()
			for id := 1; id <= w.read; id++ {
				if !w.acked[id] {
					w.c.Offer(uint64(id), w.keys[id-1], false, false)
				}
			}
		}
		for _, key := range w.keys[:8] {
			if in := w.c.InHand(key); in > replay.Places {
				t.Fatalf("key %s has %d entries in hand, at most %d may be", key, in, replay.Places)
			}
		}
		if w.read == n && !slices.Contains(w.acked[1:], false) {
			break
		}
	}
	w.c.Acked(w.confirm...)
	w.c.Next()
	inHand, known, keys, blocked, running, unacked := w.c.Left()
	equal(t, "left", []int{inHand, known, keys, blocked, running, unacked}, "[0 0 0 0 0 0]")
}

// start checks that a listener takes a key's entries in order and one at a time.
func (w *world) start(task replay.Task) {
	for _, other := range w.running {
		if other.Listener() == task.Listener() && other.Key() == task.Key() {
			w.t.Fatalf("listener %s runs for %d and %d of key %s at once", task.Listener(), other.ID(), task.ID(), task.Key())
		}
	}
	// What had ended runs once more if its entry was not acked when the lane was lost.
	repeat := w.had[fmt.Sprint(task.ID(), task.Listener())]
	if last := w.ended[task.Listener()+task.Key()]; task.ID() <= last && !repeat {
		w.t.Fatalf("listener %s starts %d behind %d of key %s", task.Listener(), task.ID(), last, task.Key())
	}
	w.running = append(w.running, task)
}

// reread does what a reader does for skipped entries.
func (w *world) reread() {
	ids, scan := w.c.Wanted()
	var done []uint64
	full := map[string]bool{}
	for _, id := range ids {
		key := w.keys[id-1]
		if !full[key] && w.c.Offer(id, key, true, false) != "skipped" {
			done = append(done, id)
		} else {
			full[key] = true
		}
	}
	w.c.Unskip(done...)
	if scan {
		w.c.Relearn(func(behind uint64, n int) (ids []uint64, keys []string) {
			for id := behind + 1; id <= uint64(w.read) && len(ids) < n; id++ {
				if !w.acked[id] {
					ids = append(ids, id)
					keys = append(keys, w.keys[id-1])
				}
			}
			return ids, keys
		})
	}
}
