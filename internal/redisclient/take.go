package redisclient

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Take connects as a client with these options does (dialling, TLS,
// authentication, database), speaks the second version of the protocol, and
// returns the connection once it is set up. It is the caller's alone: go-redis
// neither reads from it nor writes to it any more. The options are not changed.
func Take(ctx context.Context, from *redis.Options) (net.Conn, error) {
	options := *from
	var taken socket
	plain := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := plain(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &held{Conn: conn}, taken.set(conn)
	}
	options.Protocol = 2
	options.MaxRetries, options.DialerRetries = -1, 1
	options.PoolSize, options.MaxActiveConns, options.MinIdleConns, options.PipelinePoolSize = 1, 1, 0, -1
	options.ConnMaxLifetime, options.ConnMaxIdleTime = 0, -1
	Unshare(&options)
	client := redis.NewClient(&options)
	pinned := client.Conn()
	err := pinned.Ping(ctx).Err()
	conn := taken.get()
	pinned.Close()
	client.Close()
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, err
	}
	if conn == nil {
		return nil, fmt.Errorf("connect to %s: no connection was made", options.Addr)
	}
	return conn, nil
}

// A held connection is go-redis's view of the one that is taken: closing it
// closes nothing.
type held struct{ net.Conn }

func (h *held) Close() error { return nil }

// A socket is what go-redis has dialled last. It dials on a goroutine of its own,
// which may go on when nobody waits any more.
type socket struct {
	mu   sync.Mutex // guards what follows
	conn net.Conn
	late bool // what comes now is not wanted
}

func (s *socket) set(conn net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late {
		conn.Close()
		return net.ErrClosed
	}
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn = conn
	return nil
}

func (s *socket) get() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = true
	return s.conn
}

// Unshare takes out of a copy of a client's options what is that client's own, so
// that another client can be made with them.
func Unshare(options *redis.Options) {
	options.PushNotificationProcessor = nil
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.ClientSideCache, options.ClientSideCacheConfig = nil, nil
}
