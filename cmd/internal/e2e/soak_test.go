package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/corpus/seeds"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

var soak = flag.Int("soak", 0, "dispatches of TestSoak (2000000 take some minutes); 0: it is skipped")

// TestSoak sends dispatches of all types in 2,000 guilds through the gateway
// program with small bounds. After a quarter of them neither its memory nor
// Redis's grows any more.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("for some minutes; -soak 2000000 runs it")
	}
	server := redistest.Start(t)
	discord := gatewaytest.New(gatewaytest.Config{Ready: gatewaytest.Withhold, BufferDispatches: 50_000})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	r := &run{discord: discord, rdb: server.Client(t), prefix: redistest.Prefix(t), shards: 1, lanes: wire.DefaultLanes(1)}
	r.flags = []string{"--redis.url=redis://" + server.Addr() + "/0", "--redis.prefix=" + r.prefix,
		"--cache.memory_bytes=16MiB", "--cache.messages_per_channel=5", "--cache.message_age=20s", "--forward.max_length=100000"}
	p := r.gateway(t)
	pid := p.Cmd.Process.Pid

	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	go func() { // ends with the recording, or the test
		_, err := discord.Play(ctx, endless(*soak), gatewaytest.PlayOptions{})
		done <- err
	}()
	var samples []sample
	begun, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("play: %v", err)
			}
			running = false
		case <-tick.C:
			if sent := discord.SentCount(); sent >= *soak/4 { // warm
				samples = append(samples, sample{sent, resident(t, pid), info(t, r.rdb, "used_memory")})
			}
		}
	}
	took := time.Since(begun)
	if len(samples) < 8 {
		t.Fatalf("%d samples: too few dispatches to tell", len(samples))
	}
	quarters := func(of func(sample) float64) (all []float64) {
		for part := range slices.Chunk(samples, (len(samples)+3)/4) {
			sum := 0.0
			for _, s := range part {
				sum += of(s)
			}
			all = append(all, sum/float64(len(part)))
		}
		return all
	}
	t.Logf("%d dispatches in %v, %.0f a second; %d keys", *soak, took.Round(time.Second), float64(*soak)/took.Seconds(), r.rdb.DBSize(t.Context()).Val())
	for _, m := range []struct {
		name string
		of   func(sample) float64
	}{
		{"the gateway", func(s sample) float64 { return float64(s.gateway) }},
		{"Redis", func(s sample) float64 { return float64(s.redis) }},
	} {
		means := quarters(m.of)
		text := make([]string, len(means))
		total := 0.0
		for i, mean := range means {
			text[i] = fmt.Sprintf("%.1f", mean/(1<<20))
			total += mean / float64(len(means))
		}
		t.Logf("%s: %s MiB in the quarters after warming up", m.name, strings.Join(text, ", "))
		for _, mean := range means {
			if math.Abs(mean-total) > total/10 {
				t.Errorf("%s does not stay within a tenth of its mean of %.1f MiB: %v", m.name, total/(1<<20), text)
				break
			}
		}
	}
	if n := r.rdb.XLen(t.Context(), wire.NewShard(r.prefix, 0, 1).Stream(0)).Val(); n == 0 {
		t.Error("nothing is in the first lane")
	}
}

// A sample is what was used, in bytes, after so many dispatches.
type sample struct {
	sent           int
	gateway, redis int64
}

// endless makes a recording up as it is read.
func endless(n int) io.Reader {
	r, w := io.Pipe()
	go func() { // ends when everything is read, or nobody reads any more
		source := cachemodel.NewSource(1, cachemodel.Size{Guilds: 2000, Channels: 6, Users: 60})
		lines := bufio.NewWriterSize(w, 64<<10)
		for i := range n {
			name, payload := source.Next()
			if _, err := fmt.Fprintf(lines, "{\"t\":%q,\"s\":%d,\"op\":0,\"d\":%s}\n", name, i+1, payload); err != nil {
				return
			}
		}
		lines.Flush()
		w.Close()
	}()
	return r
}

// resident returns a process's resident memory in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no resident memory is told")
	return 0
}

// info returns a number that Redis tells of itself.
func info(t *testing.T, rdb redis.UniversalClient, name string) int64 {
	t.Helper()
	text, err := rdb.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("redis does not tell %s", name)
	return 0
}

// TestMemoryOfEntities prints what an entity of each kind takes in Redis, of those
// of the largest recorded session. It fails if one takes more than twice its JSON
// and a kilobyte.
func TestMemoryOfEntities(t *testing.T) {
	t.Parallel()
	if !*full {
		t.Skip("-full runs it")
	}
	r := newRun(t, 1, "--cache.messages_per_channel=1000000")
	p := r.gateway(t)
	large := seeds.Sessions[len(seeds.Sessions)-1]
	if err := <-r.start(t, large.Open, 0).done; err != nil {
		t.Fatalf("play: %v", err)
	}
	r.flowsOut(t)
	p.Stop(t)
	tag := wire.NewShard(r.prefix, 0, 1).Tag()
	content, err := cachemodel.Read(t.Context(), r.rdb, tag)
	if err != nil {
		t.Fatal(err)
	}
	type use struct{ hashes, entities, json, redis int64 }
	kinds := make(map[string]*use)
	for key, fields := range content {
		kind, _, _ := strings.Cut(key, ":")
		if kinds[kind] == nil {
			kinds[kind] = new(use)
		}
		u := kinds[kind]
		u.hashes++
		for field, value := range fields {
			if !strings.Contains(field, ":") {
				u.entities++
			}
			u.json += int64(len(value))
		}
		bytes, err := r.rdb.MemoryUsage(t.Context(), tag+":cache:"+key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		u.redis += bytes
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		u := kinds[kind]
		t.Logf("%-16s %6d in %4d hashes, JSON %5d bytes, Redis %5d bytes", kind, u.entities, u.hashes, u.json/u.entities, u.redis/u.entities)
		if u.redis > 2*u.json+1024*u.entities {
			t.Errorf("a %s takes %d bytes for %d of JSON", kind, u.redis/u.entities, u.json/u.entities)
		}
	}
}
