package forward_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A rawClient speaks RESP by hand: the fastest that one connection can be.
type rawClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func newRaw(b *testing.B) *rawClient {
	b.Helper()
	conn, err := net.Dial("tcp", redistest.Addr(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &rawClient{conn: conn, in: bufio.NewReaderSize(conn, 128<<10)}
}

func appendCommand(dst []byte, args ...any) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(args))
	for _, arg := range args {
		var text []byte
		switch v := arg.(type) {
		case []byte:
			text = v
		case *string:
			text = []byte(*v)
		case *int:
			text = strconv.AppendInt(nil, int64(*v), 10)
		case *int64:
			text = strconv.AppendInt(nil, *v, 10)
		default:
			text = fmt.Append(nil, v)
		}
		dst = append(fmt.Appendf(dst, "$%d\r\n", len(text)), text...)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// roundTrip writes commands and reads n replies.
func (c *rawClient) roundTrip(b *testing.B, commands []byte, n int) {
	if _, err := c.conn.Write(commands); err != nil {
		b.Fatal(err)
	}
	for range n {
		if err := c.skip(); err != nil {
			b.Fatal(err)
		}
	}
}

func (c *rawClient) skip() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	switch line[0] {
	case '-':
		return fmt.Errorf("redis: %s", line)
	case '$':
		if n >= 0 {
			_, err = c.in.Discard(n + 2)
		}
	case '*':
		for range n {
			if err := c.skip(); err != nil {
				return err
			}
		}
	}
	return err
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// sample returns the first recorded dispatch of a type whose payload has at
// least so many bytes.
func sample(b *testing.B, eventType string, atLeast int) []byte {
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type == eventType && len(e.Payload) >= atLeast {
			return e.Payload
		}
	}
	b.Fatalf("no %s of %d bytes was recorded", eventType, atLeast)
	return nil
}

// BenchmarkForward takes dispatches the whole way from the queue to the commit,
// and sends the same commands by hand on one connection in turn: XADDs pipelined
// 128 at a time where there is no cache work, else transactions of 128.
func BenchmarkForward(b *testing.B) {
	for _, eventType := range []string{"TYPING_START", "PRESENCE_UPDATE", "MESSAGE_UPDATE", "MESSAGE_CREATE"} {
		b.Run(eventType, func(b *testing.B) { benchmarkForward(b, eventType, sample(b, eventType, 400)) })
	}
}

func benchmarkForward(b *testing.B, eventType string, payload []byte) {
	const round, batch = 4096, 128
	rdb, cfg := redistest.Client(b), config(redistest.Prefix(b))
	cfg.TrimEvery = 200 * time.Millisecond
	cfg.MaxLength = 20_000
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	raw := newRaw(b)
	entry := wire.Entry{Event: eventType, Payload: payload, Sequence: 123456, Session: "0123456789ab", Received: 1_762_268_400_000, Codec: wire.JSON}
	if eventType == "PRESENCE_UPDATE" || eventType == "MESSAGE_UPDATE" {
		entry.State = payload
	}
	var commands []byte
	replies := 0
	transaction := eventType != "TYPING_START"
	if transaction {
		commands = appendCommand(commands, "MULTI")
		replies++
	}
	for range batch {
		if transaction {
			commands = appendCommand(commands, "HSET", keys.Cache("raw"), "1435303489536004235", payload)
			replies++
		}
		commands = appendCommand(commands, entry.AppendArgs([]any{"XADD", keys.Stream(1), "MAXLEN", "~", 20_000, "*"})...)
		replies++
	}
	if transaction {
		commands = appendCommand(commands, "HSET", keys.Cache("rawrecord"), "commit", 1, "sequence", 1, "saved", 1_762_268_400_000)
		commands = appendCommand(commands, "EXEC")
		commands = appendCommand(commands, "WATCH", keys.Cache("rawrecord"))
		commands = appendCommand(commands, "HMGET", keys.Cache("rawrecord"), "fence", "commit")
		replies += 4
	}

	var ours, theirs, used time.Duration
	rounds := 0
	err := forward.Hold(b.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if err := take(ready("s")); err != nil {
			return err
		}
		seq := int64(1)
		if eventType == "MESSAGE_UPDATE" { // there must be a message to update
			seq++
			if err := take(dispatch("s", seq, "MESSAGE_CREATE", string(payload))); err != nil {
				return err
			}
		}
		if err := settled(ctx, h, seq); err != nil {
			return err
		}
		b.ReportAllocs()
		for b.Loop() {
			begun, burnt := time.Now(), cpu()
			for range round {
				seq++
				if err := take(gateway.Dispatch{Type: eventType, Sequence: seq, Data: payload, Received: begun.UnixMilli(), SessionID: "s"}); err != nil {
					return err
				}
			}
			if err := settled(ctx, h, seq); err != nil {
				return err
			}
			ours += time.Since(begun)
			used += cpu() - burnt
			rounds++
			b.StopTimer()
			begun = time.Now()
			for range round / batch {
				raw.roundTrip(b, commands, replies)
			}
			theirs += time.Since(begun)
			b.StartTimer()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	n := float64(rounds * round)
	b.ReportMetric(float64(theirs)/float64(ours), "of-raw")
	b.ReportMetric(float64(used.Nanoseconds())/n/1000, "cpu-µs/dispatch")
	b.ReportMetric(n/ours.Seconds(), "dispatches/s")
	b.ReportMetric(n/theirs.Seconds(), "raw/s")
}

// BenchmarkCommit commits batches of fixed sizes, one in flight, and sends the
// same transaction by hand in turn.
func BenchmarkCommit(b *testing.B) {
	payload := sample(b, "MESSAGE_CREATE", 400)
	for _, size := range []int{1, 16, 128} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			rdb, cfg := redistest.Client(b), config(redistest.Prefix(b))
			keys := wire.NewShard(cfg.Prefix, 0, 1)
			raw := newRaw(b)
			bench, err := forward.NewCommitBench(b.Context(), rdb, cfg, size, payload)
			if err != nil {
				b.Fatal(err)
			}
			defer bench.Close()
			text, n := bench.Commands()
			commands := append(appendCommand(nil, "MULTI"), text...)
			commands = appendCommand(commands, "HSET", keys.Cache("rawrecord"), "commit", 1, "sequence", 1, "saved", 1_762_268_400_000)
			commands = appendCommand(commands, "EXEC")
			commands = appendCommand(commands, "WATCH", keys.Cache("rawrecord"))
			commands = appendCommand(commands, "HMGET", keys.Cache("rawrecord"), "fence", "commit")
			var ours, theirs time.Duration
			rounds := 0
			b.ReportAllocs()
			for b.Loop() {
				begun := time.Now()
				if err := bench.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(begun)
				b.StopTimer()
				begun = time.Now()
				raw.roundTrip(b, commands, n+5)
				theirs += time.Since(begun)
				if rounds++; rounds%256 == 0 {
					for lane := range lanes {
						rdb.XTrimMaxLenApprox(b.Context(), keys.Stream(lane), 1000, 0)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(theirs)/float64(ours), "of-raw")
			b.ReportMetric(float64(rounds*size)/ours.Seconds(), "dispatches/s")
		})
	}
}
