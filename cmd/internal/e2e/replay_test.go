package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/wire"

	"github.com/sluicehq/sluice/internal/proctest"
)

// handled matches a line of the worker program.
var handled = regexp.MustCompile(`(?m)^(\d+/x?\d+/\d+-\d+) (\S+) guild=(\S+) seq=(\d+) attempt=(\d+)(?: \S+)*? (\*discord\S*?|\{)(?:$|[ :,].*$|".*$)`)

// TestTwoWorkers has two workers take the recorded session from the streams.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1)
	gateway := r.gateway(t)
	workers := []*proctest.Program{start(t, "worker", r.flags...), start(t, "worker", r.flags...)}
	r.play(t, 1500, 0, nil)
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= recordedDispatches })
	lines := func() (all [][]string) {
		for _, w := range workers {
			all = append(all, handled.FindAllStringSubmatch(w.Output.String(), -1)...)
		}
		return all
	}
	proctest.Eventually(t, "everything is handled", func() bool { return len(lines()) >= recordedDispatches })
	proctest.Eventually(t, "everything is acknowledged", func() bool { return r.pending(t) == 0 })
	for i, w := range workers {
		if code := w.Stop(t); code != 0 {
			t.Errorf("worker %d: exit code %d, want 0", i, code)
		}
		if n := len(handled.FindAllString(w.Output.String(), -1)); n == 0 {
			t.Errorf("worker %d handled nothing: the lanes are not shared", i)
		}
	}
	if code := gateway.Stop(t); code != 0 {
		t.Errorf("gateway: exit code %d, want 0", code)
	}

	times := make(map[string]int)
	for _, line := range lines() {
		times[line[1]]++
	}
	for _, e := range r.entries(t) {
		lane := strings.TrimPrefix(e.stream, wire.NewShard(r.prefix, 0, 1).Tag()+":")
		lane = strings.NewReplacer("stream:", "0/", "express:", "0/x").Replace(lane)
		if n := times[lane+"/"+e.id]; n != 1 {
			t.Errorf("%s (%s/%s) was handled %d times", e.Event, lane, e.id, n)
		}
	}
	for _, w := range workers {
		last := make(map[string]int)
		for _, line := range handled.FindAllStringSubmatch(w.Output.String(), -1) {
			var seq int
			fmt.Sscan(line[4], &seq)
			key := line[2] + line[3] // a listener and a guild
			if line[3] == "-" {
				continue // outside guilds the order is by channel or user
			}
			if seq <= last[key] {
				t.Errorf("%s of guild %s: sequence %d after %d", line[2], line[3], seq, last[key])
			}
			last[key] = seq
		}
	}
	edits := 0
	all := workers[0].Output.String() + workers[1].Output.String()
	known := expected(t)
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type != "MESSAGE_UPDATE" {
			continue
		}
		states := known[e.Type+string(e.Payload)]
		if len(states) == 0 || states[0] == nil {
			continue
		}
		var before, after struct{ Content string }
		if json.Unmarshal(states[0], &before) != nil || json.Unmarshal(e.Payload, &after) != nil {
			t.Fatal("the recording can't be decoded")
		}
		if !strings.Contains(all, fmt.Sprintf("before %q, after %q", before.Content, after.Content)) {
			t.Errorf("the edit from %q to %q was not printed", before.Content, after.Content)
		}
		edits++
	}
	if edits < 50 {
		t.Errorf("%d edits with a state before, want more: the test proves little", edits)
	}
}

// TestSomeEvents forwards some types only, which the worker program heeds.
func TestSomeEvents(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1, "--forward.events=message.*,GUILD_CREATE")
	r.gateway(t)
	w := start(t, "worker", r.flags...)
	r.play(t, 0, 0, nil)
	want := 0
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type == "GUILD_CREATE" || strings.Count(e.Type, "_") == 1 && strings.HasPrefix(e.Type, "MESSAGE_") {
			want++
		}
	}
	proctest.Eventually(t, "they are handled", func() bool { return len(handled.FindAllString(w.Output.String(), -1)) >= want })
	if n := r.length(t); n != want {
		t.Errorf("%d entries, want %d", n, want)
	}
	if code := w.Stop(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestEveryProcessKilledOnce kills the gateway and each of two workers once while
// the session is played, and starts them again.
func TestEveryProcessKilledOnce(t *testing.T) {
	t.Parallel()
	r := newRun(t, 1, "--replay.expire=INTERACTION_CREATE=0,TYPING_START=0") // everything is counted
	gateway := r.gateway(t)
	out := new(proctest.Output) // both workers', in the order of their lines
	worker := func() *proctest.Program { return startWith(t, out, nil, "worker", r.flags...) }
	workers := []*proctest.Program{worker(), worker()}
	lines := func() [][]string { return handled.FindAllStringSubmatch(out.String(), -1) }
	r.play(t, 300, recordedDispatches/4, func() {
		gateway.Kill()
		gateway = r.gateway(t)
		for i, part := range []int{recordedDispatches / 2, recordedDispatches * 3 / 4} {
			proctest.Eventually(t, "some of it is handled", func() bool { return len(lines()) > part })
			workers[i].Kill()
			workers[i] = worker()
		}
	})
	want := recordedDispatches + 1 // and RESUMED
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= want })
	proctest.Eventually(t, "everything is acknowledged", func() bool { return r.pending(t) == 0 })
	times := make(map[string]int)
	last := make(map[string]int)
	again := 0
	for _, line := range lines() {
		if times[line[1]]++; times[line[1]] > 1 {
			again++
			continue
		}
		var seq int
		fmt.Sscan(line[4], &seq)
		key := line[2] + line[3] // a listener and a guild
		if line[3] == "-" {
			continue // outside guilds the order is by channel or user
		}
		if seq < last[key] {
			t.Errorf("%s of guild %s: sequence %d was first handled after %d", line[2], line[3], seq, last[key])
		}
		last[key] = seq
	}
	for _, e := range r.entries(t) {
		lane := strings.TrimPrefix(e.stream, wire.NewShard(r.prefix, 0, 1).Tag()+":")
		lane = strings.NewReplacer("stream:", "0/", "express:", "0/x").Replace(lane)
		if times[lane+"/"+e.id] == 0 {
			t.Errorf("%s (%s/%s) was not handled", e.Event, lane, e.id)
		}
	}
	if len(times) != want {
		t.Errorf("%d entries were handled, want %d", len(times), want)
	}
	if n := r.rdb.XLen(t.Context(), wire.NewShard(r.prefix, 0, 1).Dead("workers")).Val(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	for i, w := range append(workers, gateway) {
		if code := w.Stop(t); code != 0 {
			t.Errorf("program %d: exit code %d, want 0", i, code)
		}
	}
	t.Logf("%d entries, %d of them handled again", len(times), again)
}

// pending returns how many entries the workers' group has not acknowledged, read
// or not.
func (r *run) pending(t *testing.T) (n int64) {
	t.Helper()
	for shard := range r.shards {
		keys := wire.NewShard(r.prefix, shard, r.shards)
		for lane := range r.lanes {
			for _, key := range []string{keys.Stream(lane), keys.Express(lane)} {
				groups, err := r.rdb.XInfoGroups(t.Context(), key).Result()
				if err != nil && !redis.HasErrorPrefix(err, "no such key") {
					t.Fatal(err)
				}
				for _, g := range groups {
					n += g.Pending + g.Lag
				}
				if len(groups) == 0 { // no worker has been there
					n += r.rdb.XLen(t.Context(), key).Val()
				}
			}
		}
	}
	return n
}
