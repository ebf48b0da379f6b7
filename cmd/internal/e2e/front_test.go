package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A front stands before a Redis: it can be pointed at another one, cut its
// connections, and say that Redis is loading.
type front struct {
	listener net.Listener

	mu     sync.Mutex // guards what follows
	target string
	load   bool
	conns  map[net.Conn]struct{}
}

func newFront(t *testing.T, target string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	var links sync.WaitGroup
	links.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			links.Go(func() { f.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.cut()
		links.Wait()
	})
	return f
}

func (f *front) addr() string { return f.listener.Addr().String() }

// to points at another server and cuts what goes to the one before.
func (f *front) to(target string) {
	f.mu.Lock()
	f.target = target
	f.mu.Unlock()
	f.cut()
}

// loading makes it answer to everything that Redis is loading, or ends that; then
// what was connected meanwhile is cut.
func (f *front) loading(is bool) {
	f.mu.Lock()
	f.load = is
	f.mu.Unlock()
	if !is {
		f.cut()
	}
}

func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
	clear(f.conns)
}

func (f *front) keep(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[conn] = struct{}{}
}

func (f *front) serve(client net.Conn) {
	defer client.Close()
	f.keep(client)
	f.mu.Lock()
	target, load := f.target, f.load
	f.mu.Unlock()
	if load {
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			for _, c := range buf[:n] {
				if c != '*' {
					continue // one answer to each command
				}
				if _, err := client.Write([]byte("-LOADING Redis is loading the dataset in memory\r\n")); err != nil {
					return
				}
			}
		}
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	f.keep(server)
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(server, client)
		server.Close()
	})
	io.Copy(client, server)
	client.Close()
	server.Close()
	both.Wait()
}
