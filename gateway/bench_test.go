package gateway_test

import (
	"compress/zlib"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sluicehq/sluice/gateway"
)

// A fire is a gateway that sends one dispatch over and over, as fast as it is
// read, at next to no cost of its own.
func fire(b *testing.B, message []byte, compress string) (url string) {
	b.Helper()
	hello := []byte(`{"op":10,"d":{"heartbeat_interval":41250}}`)
	ready := []byte(`{"t":"READY","s":1,"op":0,"d":{"session_id":"x"}}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{ReadBufferSize: 4096, WriteBufferSize: 4096}
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		kind, pack := websocket.TextMessage, func(m []byte) []byte { return m }
		if compress == gateway.CompressZlibStream {
			kind, pack = websocket.BinaryMessage, newDeflater(zlib.BestSpeed).message
		}
		write := func(m []byte) error { return ws.WriteMessage(kind, m) }
		write(pack(hello))
		ws.ReadMessage()
		write(pack(ready))
		write(pack(message))
		m := pack(message) // refers to the one before, and so does each repeat
		var batch []byte
		for range 64 {
			batch = appendServerFrame(batch, byte(kind), m)
		}
		for {
			if _, err := ws.NetConn().Write(batch); err != nil {
				return
			}
		}
	}))
	b.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func appendServerFrame(b []byte, opcode byte, payload []byte) []byte {
	b = append(b, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n <= 0xffff:
		b = append(b, 126, byte(n>>8), byte(n))
	default:
		b = append(b, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, payload...)
}

// A meter is a handler that gives places to dispatches.
type meter struct{ places chan struct{} }

func (m meter) Check(context.Context) error          { return nil }
func (m meter) SessionEnded(context.Context, string) {}
func (m meter) Sequence(received int64) int64        { return received }
func (m meter) Dispatch(ctx context.Context, _ gateway.Dispatch) error {
	select {
	case m.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// BenchmarkRead is the way of a dispatch from the socket to the handler. The CPU
// time is the process's: the sending side's share of it, and the kernel's, is in it.
func BenchmarkRead(b *testing.B) {
	for _, compress := range []string{gateway.CompressNone, gateway.CompressZlibStream} {
		for _, size := range []int{800, 2400, 30_000} {
			b.Run(fmt.Sprint(compress, "/", size), func(b *testing.B) {
				message := dispatchOf(size)
				m := meter{make(chan struct{}, 256)}
				shard, err := gateway.New(gateway.Config{
					Token: "token", URL: fire(b, message, compress), Compress: compress,
					Logger: slog.New(slog.DiscardHandler),
				}, m)
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				wg.Go(func() { shard.Run(ctx, gateway.Session{}) })
				for range 1000 {
					<-m.places
				}
				b.SetBytes(int64(len(message)))
				b.ReportAllocs()
				runtime.GC()
				before := cpu()
				for b.Loop() {
					<-m.places
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
				cancel()
				wg.Wait()
			})
		}
	}
}

// cpu is the time the process has spent computing.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
