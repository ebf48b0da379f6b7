package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/proctest"
)

// A Server is a redis-server process. Its methods must not be called
// concurrently with each other; clients may use it concurrently.
type Server struct {
	addr    string
	binary  string
	dir     string
	args    []string
	process *proctest.Process // nil while it is down
}

// Start starts a server of the test's own and waits until it answers. args are
// further options of redis-server ("--appendonly", "yes"); without any it
// persists nothing, and data is lost when it is killed. It is stopped and its
// data removed when the test ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := start(lookBinary(tb), args)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.end)
	return s
}

// Addr returns host:port. It stays the same over Restart.
func (s *Server) Addr() string { return s.addr }

// Client returns a client of the server; it is closed when the test ends.
func (s *Server) Client(tb testing.TB) *redis.Client { return client(tb, s.addr) }

// Dir returns the data directory, which is kept over restarts.
func (s *Server) Dir() string { return s.dir }

// Kill ends the process with SIGKILL, as a crash would, and returns once it is
// gone. It does nothing if the server is down.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Stop ends the process with SIGTERM, at which Redis saves what it is
// configured to save, and returns once it is gone.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if s.process == nil {
		return
	}
	if err := s.process.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatalf("redistest: stop redis-server: %v", err)
	}
	select {
	case <-s.process.Ended:
		s.process = nil
	case <-time.After(10 * time.Second):
		tb.Fatalf("redistest: redis-server did not stop within 10s; its log:\n%s", s.log())
	}
}

// Restart starts the server again on the same address with the same data
// directory, killing it first if it runs, and waits until it answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		tb.Fatalf("redistest: restart: %v", err)
	}
}

// Pause freezes the process with SIGSTOP: connections stay, nothing is answered.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.send(tb, pauseSignal)
}

// Continue ends a Pause.
func (s *Server) Continue(tb testing.TB) {
	tb.Helper()
	s.send(tb, continueSignal)
}

func (s *Server) send(tb testing.TB, sig os.Signal) {
	tb.Helper()
	if sig == nil {
		tb.Skip("redistest: processes can't be paused on " + runtime.GOOS)
	}
	if s.process == nil {
		tb.Fatal("redistest: the server is down")
	}
	if err := s.process.Cmd.Process.Signal(sig); err != nil {
		tb.Fatalf("redistest: send %v to redis-server: %v", sig, err)
	}
}

// end kills the process and removes its data.
func (s *Server) end() {
	s.Kill()
	os.RemoveAll(s.dir)
}

func (s *Server) log() []byte {
	text, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	if len(text) > 4096 {
		text = text[len(text)-4096:]
	}
	return text
}

func lookBinary(tb testing.TB) string {
	tb.Helper()
	binary, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		tb.Fatalf("redistest: %v; install Redis 6.2 or newer", err)
	default:
		tb.Skipf("redistest: %v; install Redis 6.2 or newer to run this test", err)
	}
	return binary
}

var errPort = errors.New("the port was taken by another process")

func start(binary string, args []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dir: dir, args: args}
	for range 10 { // the port is free when it is chosen, perhaps not a moment later
		if s.addr, err = freeAddr(); err != nil {
			break
		}
		if err = s.launch(); !errors.Is(err, errPort) {
			break
		}
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// launch starts the process and waits until it, and no other, answers at addr.
func (s *Server) launch() error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", "redis.log",
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)
	p, err := proctest.Spawn(exec.Command(s.binary, args...))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	defer rdb.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		select {
		case <-p.Ended:
			// A cluster's node listens also at its port plus 10,000.
			if log := s.log(); bytes.Contains(log, []byte("Address already in use")) || bytes.Contains(log, []byte("port number too high")) {
				return fmt.Errorf("%w: %s", errPort, s.addr)
			}
			return fmt.Errorf("redis-server %q exited: %v; its log:\n%s", args, p.Err, s.log())
		case <-tick.C:
		}
		if nc, err := net.Dial("tcp", s.addr); err != nil { // go-redis would log it
			continue
		} else {
			nc.Close()
		}
		// PING answers an error while the data set is loaded, INFO does not.
		info, err := rdb.Info(context.Background(), "server").Result()
		if err != nil || rdb.Ping(context.Background()).Err() != nil {
			continue
		}
		if pid := processID.FindStringSubmatch(info); pid == nil || pid[1] != strconv.Itoa(p.Cmd.Process.Pid) {
			p.Kill()
			return fmt.Errorf("%w: %s", errPort, s.addr)
		}
		s.process = p
		return nil
	}
	p.Kill()
	return fmt.Errorf("redis-server did not answer at %s within 20s; its log:\n%s", s.addr, s.log())
}

var processID = regexp.MustCompile(`process_id:(\d+)`)
