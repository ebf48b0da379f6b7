package replay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// BenchmarkConsume measures consuming and acknowledging 100000 entries of 1.2 KB
// with a listener that does nothing, and in turn a hand-written client that does
// the least there is to do: XREADGROUP COUNT 100 and one XACK for what it gave.
// ratio is the worker's rate in terms of the raw client's, the median of all
// iterations; the aim is 0.55. As in every program of Sluice 64 MiB are reserved
// and never touched, so that the collector runs that much less often.
func BenchmarkConsume(b *testing.B) {
	for _, lanes := range []int{1, 16} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			const total = 100000
			server := redistest.Start(b)
			reserved := make([]byte, 64<<20)
			defer runtime.KeepAlive(reserved)
			var ratios []float64
			var spent, rawSpent, served, rawServed time.Duration
			for b.Loop() {
				b.StopTimer()
				raw := fill(b, server.Addr(), lanes, total)
				before, servedBefore := cpu(), raw.serverCPU()
				rawTook := raw.consumeRaw(b, total)
				rawSpent += cpu() - before
				rawServed += raw.serverCPU() - servedBefore
				d := fill(b, server.Addr(), lanes, total)
				before, servedBefore = cpu(), d.serverCPU()
				b.StartTimer()
				took := d.consume(b, total)
				b.StopTimer()
				spent += cpu() - before
				served += d.serverCPU() - servedBefore
				ratios = append(ratios, rawTook.Seconds()/took.Seconds())
				b.ReportMetric(total/took.Seconds(), "entries/s")
				b.StartTimer()
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			n := float64(len(ratios) * total)
			b.ReportMetric(float64(spent.Microseconds())/n, "µs-cpu/entry")
			b.ReportMetric(float64(rawSpent.Microseconds())/n, "µs-cpu-raw/entry")
			b.ReportMetric(float64(served.Microseconds())/n, "µs-redis/entry")
			b.ReportMetric(float64(rawServed.Microseconds())/n, "µs-redis-raw/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpu returns the processor time this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU returns the processor time Redis has used.
func (d *deployment) serverCPU() (used time.Duration) {
	info := d.rdb.Info(d.t.Context(), "cpu").Val()
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, rest, _ := strings.Cut(info, name)
		text, _, _ := strings.Cut(rest, "\r")
		seconds, _ := strconv.ParseFloat(text, 64)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

func fill(b *testing.B, addr string, lanes, total int) *deployment {
	b.Helper()
	d := deploy(b, addr, 1, lanes)
	if err := d.rdb.FlushAll(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	d.record()
	filler := strings.Repeat("lorem ipsum dolor sit amet ", 42)
	var guilds []string
	var entries []wire.Entry
	for i := range total {
		guild := d.guild(0, i*7919%1000)
		e := d.entry("MESSAGE_CREATE", guild)
		e.Payload = []byte(`{"id":"` + strconv.Itoa(i) + `","content":"` + filler + `","guild_id":"` + guild + `"}`)
		guilds = append(guilds, guild)
		entries = append(entries, e)
		if len(entries) == 256 || i == total-1 { // not all at once: a large heap would make the collector's work unlike a worker's
			d.put(false, guilds, entries)
			guilds, entries = guilds[:0], entries[:0]
		}
	}
	runtime.GC()
	return d
}

// consume runs a worker until it has acknowledged all entries.
func (d *deployment) consume(b *testing.B, total int) time.Duration {
	b.Helper()
	var n atomic.Int64
	done := make(chan struct{})
	r := registry("nothing", "#", func(context.Context, *listener.Delivery) error {
		if n.Add(1) == int64(total) {
			close(done)
		}
		return nil
	})
	rdb := redis.NewClient(&redis.Options{Addr: d.addr})
	defer rdb.Close()
	w, err := replay.New(rdb, r, replay.Config{Prefix: d.prefix, Logger: slog.New(slog.NewTextHandler(logTo, nil))})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	start := time.Now()
	stopped := make(chan error)
	go func() { stopped <- w.Run(ctx) }()
	<-done
	cancel()
	if err := <-stopped; err != nil { // all acks are sent when it returns
		b.Fatal(err)
	}
	took := time.Since(start)
	if n := d.pending("workers"); n != 0 {
		b.Fatalf("%d entries are pending", n)
	}
	return took
}

// consumeRaw reads and acknowledges all entries, lane after lane.
func (d *deployment) consumeRaw(b *testing.B, total int) time.Duration {
	b.Helper()
	shard := wire.NewShard(d.prefix, 0, 1)
	nc, err := net.Dial("tcp", d.addr)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	c := &rawClient{nc: nc, rd: bufio.NewReaderSize(nc, 256<<10)}
	start := time.Now()
	got := 0
	for lane := range d.lanes {
		stream := shard.Stream(lane)
		c.command("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
		c.send(b)
		c.skip(b)
		for {
			c.command("XREADGROUP", "GROUP", "workers", "raw", "COUNT", "100", "STREAMS", stream, ">")
			c.send(b)
			if acked := c.ids > 0; acked {
				c.skip(b) // of the XACK before
			}
			n := c.entries(b, stream)
			if n == 0 {
				break
			}
			got += n
		}
	}
	if got != total {
		b.Fatalf("raw client got %d entries, want %d", got, total)
	}
	return time.Since(start)
}

// A rawClient reads entries and builds the XACK for them as it goes. Each XACK is
// sent together with the next read.
type rawClient struct {
	nc  net.Conn
	rd  *bufio.Reader
	out []byte
	ack []byte
	ids int
}

func (c *rawClient) command(words ...string) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(len(words)), 10)
	c.out = append(c.out, "\r\n"...)
	for _, w := range words {
		c.out = appendBulk(c.out, w)
	}
}

func appendBulk[S string | []byte](b []byte, word S) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(word)), 10)
	b = append(b, "\r\n"...)
	b = append(b, word...)
	return append(b, "\r\n"...)
}

func (c *rawClient) send(b *testing.B) {
	if _, err := c.nc.Write(c.out); err != nil {
		b.Fatal(err)
	}
	c.out = c.out[:0]
}

func (c *rawClient) head(b *testing.B) (byte, int) {
	line, err := c.rd.ReadSlice('\n')
	if err != nil {
		b.Fatal(err)
	}
	if line[0] == '-' {
		b.Fatalf("raw client: %s", line)
	}
	n := 0
	negative := false
	for _, ch := range line[1 : len(line)-2] {
		if ch == '-' {
			negative = true
		} else if ch >= '0' && ch <= '9' {
			n = n*10 + int(ch-'0')
		}
	}
	if negative {
		n = -n
	}
	return line[0], n
}

func (c *rawClient) word(b *testing.B) []byte {
	_, n := c.head(b)
	w, err := c.rd.Peek(n + 2)
	if err != nil && err != io.EOF {
		b.Fatal(err)
	}
	c.rd.Discard(n + 2)
	return w[:n]
}

func (c *rawClient) skip(b *testing.B) {
	kind, n := c.head(b)
	switch {
	case kind == '$' && n >= 0:
		c.rd.Discard(n + 2)
	case kind == '*':
		for range n {
			c.skip(b)
		}
	}
}

// entries reads what XREADGROUP answers for one stream and queues its XACK.
func (c *rawClient) entries(b *testing.B, stream string) int {
	c.ids = 0
	if _, n := c.head(b); n <= 0 {
		return 0
	}
	c.head(b)
	c.skip(b)
	_, n := c.head(b)
	c.ack = c.ack[:0]
	for range n {
		c.head(b)
		c.ack = appendBulk(c.ack, c.word(b))
		c.skip(b)
	}
	c.ids = n
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(3+n), 10)
	c.out = append(c.out, "\r\n"...)
	c.out = appendBulk(c.out, "XACK")
	c.out = appendBulk(c.out, stream)
	c.out = appendBulk(c.out, "workers")
	c.out = append(c.out, c.ack...)
	return n
}
