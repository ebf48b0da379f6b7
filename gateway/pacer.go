package gateway

import (
	"context"
	"sync"
	"time"
)

// identifyInterval is Discord's 5 seconds and a little for clocks and networks.
const identifyInterval = 5*time.Second + 250*time.Millisecond

// A LocalPacer is a Pacer for the shards of one process. The zero value is ready
// to use. Safe for concurrent use.
type LocalPacer struct {
	// Interval is the time between two identifies of a bucket; 0: 5.25 s.
	Interval time.Duration

	mu   sync.Mutex
	next map[int]time.Time // by bucket: when the next identify may go out
}

// Wait takes the bucket's next place and returns when it has come. A place whose
// wait is cut short by ctx is not given back. The error is ctx's.
func (p *LocalPacer) Wait(ctx context.Context, bucket int) error {
	wait := p.take(bucket, time.Now())
	return sleep(ctx, wait)
}

func (p *LocalPacer) take(bucket int, now time.Time) time.Duration {
	interval := p.Interval
	if interval == 0 {
		interval = identifyInterval
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(map[int]time.Time)
	}
	at := p.next[bucket]
	if at.Before(now) {
		at = now
	}
	p.next[bucket] = at.Add(interval)
	return at.Sub(now)
}

// sleep waits for d, or for the end of ctx, whose error it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
