package redistest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// quiet is how long a connection whose reply is to be dropped must be silent in
// both directions before its request counts as complete and answered.
const quiet = 20 * time.Millisecond

const longestMatch = 256 // bytes

// A Proxy passes TCP connections on to a server and loses what its rules say.
// Its methods are safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup // accept loop and connections

	mu     sync.Mutex
	rules  []*rule
	links  map[*link]struct{}
	counts Counts
	down   bool // connections are refused
}

// Counts is what a Proxy has done so far.
type Counts struct {
	Accepted        int // connections
	DroppedRequests int // by DropRequest
	DroppedReplies  int // by DropReply; counted once the server is done with the request
	Cut             int // connections ended by CutAll and Down
}

// A rule loses the next left client writes that contain match, or their replies.
type rule struct {
	match []byte
	left  int
	reply bool
}

// NewProxy starts a proxy in front of target (host:port). It ends, with all its
// connections, when the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr returns host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts returns what the proxy has done so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// DropReply loses the replies to the next n client writes that contain match:
// the write is passed on, the server's reply is read and thrown away, and once
// the server is done with all that was written the client's connection is cut.
// Names of commands are in lower case in what go-redis writes.
func (p *Proxy) DropReply(match []byte, n int) {
	p.add(&rule{match: bytes.Clone(match), left: n, reply: true})
}

// DropRequest cuts the connection of the next n client writes that contain
// match, without passing them on.
func (p *Proxy) DropRequest(match []byte, n int) { p.add(&rule{match: bytes.Clone(match), left: n}) }

func (p *Proxy) add(r *rule) {
	if len(r.match) == 0 || len(r.match) > longestMatch {
		panic("redistest: a rule matches 1 to 256 bytes")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
}

// CutAll ends all connections there are; new ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAll()
}

// Down ends all connections and cuts new ones, until Up: to its clients the
// server is gone, and to the server they are.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.cutAll()
}

// Up ends a Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *Proxy) cutAll() {
	for l := range p.links {
		p.counts.Cut++
		l.cut()
	}
}

func (p *Proxy) close() {
	p.Down()
	p.listener.Close()
	p.running.Wait()
}

// accept ends when the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the one connection is lost, as on a real network
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{proxy: p, client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.counts.Accepted++
		if p.down {
			l.cut()
		}
		p.mu.Unlock()
		p.running.Go(l.run)
	}
}

// take reports which rule the last n bytes of text meet, perhaps together with
// those before, and uses it up once.
func (p *Proxy) take(text []byte, n int) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		from := max(0, len(text)-n-len(r.match)+1)
		if r.left > 0 && bytes.Contains(text[from:], r.match) {
			r.left--
			if !r.reply {
				p.counts.DroppedRequests++
			}
			return r
		}
	}
	return nil
}

// A link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn

	mu       sync.Mutex
	dropping bool        // replies are thrown away
	silence  *time.Timer // runs from the first byte thrown away; reset by bytes in either direction
}

func (l *link) cut() {
	l.client.Close()
	l.server.Close()
}

// run ends when both directions have.
func (l *link) run() {
	var requests sync.WaitGroup
	requests.Go(l.requests)
	l.replies()
	l.cut()
	requests.Wait()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence != nil {
		l.silence.Stop()
	}
	if l.dropping {
		l.proxy.counts.DroppedReplies++
	}
}

// requests passes on what the client writes, until it ends or is cut.
func (l *link) requests() {
	var (
		buf  = make([]byte, 64<<10)
		seen []byte // the end of what was read before, for a match that begins there
	)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			seen = append(seen, buf[:n]...)
			if r := l.proxy.take(seen, n); r != nil {
				seen = seen[:0]
				if !r.reply {
					l.cut()
					return
				}
				l.mu.Lock()
				l.dropping = true
				l.mu.Unlock()
			}
			if len(seen) > longestMatch {
				seen = append(seen[:0], seen[len(seen)-longestMatch:]...)
			}
			l.touch(false)
			if _, err := l.server.Write(buf[:n]); err != nil {
				l.cut()
				return
			}
		}
		if err != nil {
			l.server.CloseWrite()
			return
		}
	}
}

// replies passes on, or throws away, what the server writes until it ends.
func (l *link) replies() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 {
			if l.touch(true) {
				continue
			}
			if _, err := l.client.Write(buf[:n]); err != nil {
				io.Copy(io.Discard, l.server)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// touch notes bytes in a direction and reports whether replies are thrown away.
// After the first one, silence means that the request is complete: the server's
// side is half-closed, and the server's end of file proves that it has executed
// everything it was sent.
func (l *link) touch(reply bool) (dropping bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.dropping:
	case l.silence != nil:
		l.silence.Reset(quiet)
	case reply:
		l.silence = time.AfterFunc(quiet, func() { l.server.CloseWrite() })
	}
	return l.dropping
}
