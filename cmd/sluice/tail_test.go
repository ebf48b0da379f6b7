package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func deployment(t *testing.T) (rdb *redis.Client, prefix string, flags []string) {
	t.Helper()
	rdb, prefix = redistest.Client(t), redistest.Prefix(t)
	if err := establish(t, rdb, prefix); err != nil {
		t.Fatal(err)
	}
	return rdb, prefix, []string{"--redis.url=redis://" + redistest.Addr(t), "--redis.prefix=" + prefix}
}

// ids returns the stream ids of the lines, in their order.
func ids(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(text) {
		name := strings.Fields(line)[1]
		all = append(all, name[strings.LastIndexByte(name, '/')+1:])
	}
	return all
}

// More entries than a page in some streams, few in others, none in one: all come
// once, in order.
func TestTailMergesManyPages(t *testing.T) {
	t.Parallel()
	rdb, prefix, flags := deployment(t)
	var want []string
	streams := []string{"0/stream:0", "0/stream:0", "0/stream:0", "0/stream:1", "1/stream:0", "1/express:0"}
	pipe := rdb.Pipeline()
	for i := range 1000 {
		id := fmt.Sprintf("%d-%d", 1000+i/3, i%3)
		want = append(want, id)
		where := streams[rand.N(len(streams))]
		if i >= 400 && i < 800 {
			where = "0/stream:0" // the others are far behind in their reading
		}
		shard, name, _ := strings.Cut(where, "/")
		event := "MESSAGE_CREATE"
		if i%10 == 0 {
			event = "TYPING_START"
		}
		e := wire.Entry{Event: event, Payload: []byte(`{"guild_id":"4194304"}`), Codec: wire.JSON}
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "{" + prefix + ":" + shard + "/2}:" + name, ID: id, Values: e.AppendArgs(nil)})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenth := func(all []string) (some []string) {
		for i := 0; i < len(all); i += 10 {
			some = append(some, all[i])
		}
		return some
	}
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--from=0"}, want},
		{[]string{"--from=0", "-n=333"}, want[:333]},
		{[]string{"-n=1"}, want[999:]},
		{[]string{"-n=250"}, want[750:]},
		{[]string{"-n=5000"}, want},
		{[]string{"-n=100", "--event=typing.>"}, tenth(want)},
		{[]string{"-n=7", "--event=typing.>"}, tenth(want)[93:]},
		{[]string{"--from=0", "--event=typing.>"}, tenth(want)},
		{[]string{"--from=0", "--event=presence.>"}, nil},
		{[]string{"-n=10", "--event=presence.>"}, nil},
		{[]string{"--from=" + want[500]}, want[500:]},
	} {
		var stdout, stderr output
		if code := run(t.Context(), slices.Concat([]string{"tail"}, flags, tc.args), nil, &stdout, &stderr); code != 0 {
			t.Fatalf("tail %q: code %d: %s", tc.args, code, stderr.String())
		}
		if got := ids(t, stdout.String()); !slices.Equal(got, tc.want) {
			t.Errorf("tail %q shows %d entries, want %d, or in another order", tc.args, len(got), len(tc.want))
		}
	}
}

func TestTailFollows(t *testing.T) {
	t.Parallel()
	rdb, prefix, flags := deployment(t)
	add := func(where, id string) {
		t.Helper()
		if err := writeEntry(rdb, prefix, []string{where, id, "MESSAGE_CREATE", `{"id":"1"}`}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		add("0/stream:0", fmt.Sprintf("%d-0", 100+i))
	}
	tails := map[string]*running{
		"the last 2": start(t, nil, slices.Concat([]string{"tail", "-f", "-n=2"}, flags)...),
		"all":        start(t, nil, slices.Concat([]string{"tail", "-f", "--from=0"}, flags)...),
		"22":         start(t, nil, slices.Concat([]string{"tail", "-f", "--from=0", "-n=22"}, flags)...),
	}
	before := map[string]int{"the last 2": 2, "all": 20, "22": 20}
	for name, r := range tails {
		r.stdout.wait(t, name, func(text string) bool { return strings.Count(text, "\n") == before[name] })
	}
	var want []string
	for i := range 150 { // more than a page, in four streams
		id := fmt.Sprintf("%d-0", 1000+i)
		add([]string{"0/stream:0", "0/stream:1", "1/stream:1", "1/express:0"}[i%4], id)
		want = append(want, id)
	}
	for _, name := range []string{"the last 2", "all"} {
		r := tails[name]
		text := r.stdout.wait(t, name, func(text string) bool { return strings.Count(text, "\n") >= before[name]+len(want) })
		got := ids(t, text)[before[name]:]
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s shows %d entries more, want %d, each once", name, len(got), len(want))
		}
		r.stop()
		if code := r.code(t); code != 0 {
			t.Errorf("%s: exit code %d after an interrupt, want 0: %s", name, code, r.stderr.String())
		}
	}
	if code := tails["22"].code(t); code != 0 || strings.Count(tails["22"].stdout.String(), "\n") != 22 {
		t.Errorf("-n 22 shows %d entries and ends with %d", strings.Count(tails["22"].stdout.String(), "\n"), code)
	}
}

func TestTailFromNowAndFromBack(t *testing.T) {
	t.Parallel()
	rdb, prefix, flags := deployment(t)
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, minutes := range []int64{90, 50, 10} {
		id := fmt.Sprintf("%d-0", now.UnixMilli()-minutes*60000)
		if err := writeEntry(rdb, prefix, []string{"0/stream:0", id, "M", `{}`}); err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[string]int{"1h": 2, "2h": 3, "-1h": 2, "5m": 0, "0": 3, "$": 0, "1000000h": 3} {
		var stdout, stderr output
		code := run(t.Context(), slices.Concat([]string{"tail", "--from=" + from}, flags), nil, &stdout, &stderr)
		if got := strings.Count(stdout.String(), "\n"); code != 0 || got != want {
			t.Errorf("tail --from %s shows %d entries and ends with %d, want %d and 0: %s", from, got, code, want, stderr.String())
		}
	}
	r := start(t, nil, slices.Concat([]string{"tail", "-f", "--from=$"}, flags)...)
	// Until it has begun to follow, an entry may be from before. What is sure is
	// that none of the old ones comes.
	for i := 0; !strings.Contains(r.stdout.String(), "\n") && i < 1000; i++ {
		if err := writeEntry(rdb, prefix, []string{"1/stream:0", "-", "NEW", `{}`}); err != nil {
			t.Fatal(err)
		}
	}
	text := r.stdout.wait(t, "a new entry", func(text string) bool { return strings.Contains(text, "NEW") })
	if strings.Contains(text, " M ") {
		t.Errorf("tail --from $ shows old entries:\n%s", text)
	}
	r.stop()
	if code := r.code(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
