// Package redistest gives tests a real redis-server of their own, on a free
// port and with a data directory that goes with the test, and a TCP proxy that
// loses requests and replies on demand.
//
// Tests of a package share one server, each under a prefix of its own:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestLane(t *testing.T) {
//		t.Parallel()
//		rdb, prefix := redistest.Client(t), redistest.Prefix(t)
//		…
//	}
//
// A test that kills, stops or configures its server starts one with Start.
//
// Without a redis-server binary in PATH tests are skipped, but fail where the
// environment variable CI is set.
package redistest

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Main runs a package's tests, stops the package's server and exits: with the
// tests' own code, or with 1 if they passed but left goroutines behind, which
// are then printed.
func Main(m *testing.M) {
	code := Run(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines left by the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run runs a package's tests, stops the package's server and returns the exit
// code. It is for a TestMain that has more to do than Main does.
func Run(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.end()
		shared.server = nil
	}
	return code
}

// shared is the package's server. It lives as long as the test binary, which is
// why it can't be held by a test.
var shared struct {
	sync.Mutex
	server *Server
}

// Addr returns the address of the package's server, which is started by the
// first call. The server persists nothing; its clients must not flush it or
// change its configuration, since other tests use it at the same time.
func Addr(tb testing.TB) string {
	tb.Helper()
	binary := lookBinary(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := start(binary, nil)
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
		shared.server = s
	}
	return shared.server.addr
}

// Client returns a client of the package's server; it is closed when the test ends.
func Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return client(tb, Addr(tb))
}

func client(tb testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

var prefixes atomic.Uint64

// Prefix returns a key prefix that no other test of the package has.
func Prefix(tb testing.TB) string {
	tb.Helper()
	return "t" + strconv.FormatUint(prefixes.Add(1), 10)
}
