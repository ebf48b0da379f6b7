package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pageEntries  = 100                    // read at a time from a stream
	pollInterval = 150 * time.Millisecond // between two looks at streams that had nothing new
)

// A stream is one that is read.
type stream struct {
	key         string
	shard, lane int
	express     bool

	after   entryID  // what has been read
	waiting []*shown // read and not yet shown, in order
	more    bool     // the last read brought as much as it may: there may be more
	read    bool     // it has been read once
}

// A tailer shows the entries of several streams in the order of their ids.
type tailer struct {
	rdb     redis.UniversalClient
	streams []*stream
	keep    func(*shown) bool
}

var errEnough = errors.New("enough entries")

// run shows what o asks for, from start on.
func (t *tailer) run(ctx context.Context, start position, o tailOptions, show func(*shown) error) error {
	left := -1 // entries to show; -1: all
	if start == (position{}) {
		if err := t.last(ctx, o.number, show); err != nil || !o.follow {
			return err
		}
	} else {
		if err := t.begin(ctx, start); err != nil {
			return err
		}
		if o.numbered {
			left = o.number
		}
	}
	if left == 0 {
		return nil
	}
	err := t.forward(ctx, o.follow, func(s *shown) error {
		if err := show(s); err != nil {
			return err
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// begin sets where the streams are read from.
func (t *tailer) begin(ctx context.Context, start position) error {
	switch {
	case start.last:
		ends, err := t.ranges(ctx, t.streams, func(*stream) string { return "+" }, 1)
		for i, s := range t.streams {
			if err == nil && len(ends[i]) > 0 {
				s.after, _ = parseID(ends[i][0].ID)
			}
		}
		return err
	case start.back > 0:
		now, err := t.rdb.Time(ctx).Result()
		if err != nil {
			return fmt.Errorf("ask for the time: %w", err)
		}
		from := entryID{ms: uint64(max(now.Add(-start.back).UnixMilli(), 0))}
		for _, s := range t.streams {
			s.after = from.before()
		}
	default:
		from, _ := parseID(start.id)
		for _, s := range t.streams {
			s.after = from.before()
		}
	}
	return nil
}

// last shows the last n entries that are kept, and leaves the streams behind
// them.
func (t *tailer) last(ctx context.Context, n int, show func(*shown) error) error {
	var (
		found []*shown
		open  = slices.Clone(t.streams)
		end   = make(map[*stream]string) // where the next page ends
	)
	for _, s := range open {
		end[s] = "+"
	}
	for len(open) > 0 {
		count := min(max(n, 1), pageEntries)
		pages, err := t.ranges(ctx, open, func(s *stream) string { return end[s] }, count)
		if err != nil {
			return err
		}
		var next []*stream
		for i, s := range open {
			for _, m := range pages[i] {
				e := newShown(s, m)
				if !s.read {
					s.read, s.after = true, e.id
				}
				if t.keep(e) {
					found = append(found, e)
				}
			}
			if len(pages[i]) == count {
				end[s] = "(" + pages[i][count-1].ID
				next = append(next, s)
			}
		}
		// A stream whose next page ends before the n found so far has nothing to
		// add to them.
		slices.SortFunc(found, func(a, b *shown) int { return a.compare(b) })
		found = found[max(0, len(found)-n):]
		open = slices.DeleteFunc(next, func(s *stream) bool {
			oldest, _ := parseID(end[s][1:])
			return len(found) == n && (n == 0 || oldest.compare(found[0].id) < 0)
		})
	}
	for _, e := range found {
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

// ranges returns the last entries of streams, newest first, from their ends back.
func (t *tailer) ranges(ctx context.Context, streams []*stream, end func(*stream) string, count int) ([][]redis.XMessage, error) {
	cmds := make([]*redis.XMessageSliceCmd, len(streams))
	_, err := t.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, s := range streams {
			cmds[i] = p.XRevRangeN(ctx, s.key, end(s), "-", int64(count))
		}
		return nil
	})
	pages := make([][]redis.XMessage, len(streams))
	for i, cmd := range cmds {
		if cmd.Err() != nil {
			return nil, fmt.Errorf("read %s: %w", streams[i].key, cmd.Err())
		}
		pages[i] = cmd.Val()
	}
	return pages, err
}

// forward shows what is behind the streams' positions, with follow until ctx
// ends.
func (t *tailer) forward(ctx context.Context, follow bool, show func(*shown) error) error {
	for {
		if err := t.fill(ctx, follow); err != nil {
			return err
		}
		dry := true
		for s := t.oldest(); s != nil; s = t.oldest() {
			dry = false
			e := s.waiting[0]
			s.waiting = s.waiting[1:]
			if err := show(e); err != nil {
				return err
			}
			if len(s.waiting) == 0 && s.more {
				break // what is next in it may be older than what the others have
			}
		}
		if t.pending() {
			continue
		}
		if !follow {
			return nil
		}
		if dry {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pollInterval):
			}
		}
	}
}

// pending reports whether there is more to show without waiting for new entries.
func (t *tailer) pending() bool {
	return slices.ContainsFunc(t.streams, func(s *stream) bool { return s.more || len(s.waiting) > 0 })
}

// oldest returns the stream whose first waiting entry has the least id.
func (t *tailer) oldest() *stream {
	var found *stream
	for _, s := range t.streams {
		if len(s.waiting) > 0 && (found == nil || s.waiting[0].compare(found.waiting[0]) < 0) {
			found = s
		}
	}
	return found
}

// fill reads the streams that have nothing waiting; again those that had nothing
// more only with again.
func (t *tailer) fill(ctx context.Context, again bool) error {
	for {
		var (
			streams []*stream
			cmds    []*redis.XStreamSliceCmd
		)
		_, err := t.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, s := range t.streams {
				if len(s.waiting) > 0 || s.read && !s.more && !again {
					continue
				}
				streams = append(streams, s)
				cmds = append(cmds, p.XRead(ctx, &redis.XReadArgs{
					Streams: []string{s.key, s.after.String()}, Count: pageEntries, Block: -1,
				}))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() != nil {
			return ctx.Err()
		}
		filtered := false // a full page of which nothing is kept: the stream must be read on
		for i, cmd := range cmds {
			s := streams[i]
			if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
				return fmt.Errorf("read %s: %w", s.key, cmd.Err())
			}
			s.read, s.more = true, false
			for _, found := range cmd.Val() {
				s.more = len(found.Messages) == pageEntries
				for _, m := range found.Messages {
					e := newShown(s, m)
					s.after = e.id
					if t.keep(e) {
						s.waiting = append(s.waiting, e)
					}
				}
			}
			filtered = filtered || s.more && len(s.waiting) == 0
		}
		if !filtered {
			return nil
		}
	}
}
