package replay

import (
	"cmp"
	"log/slog"
	"time"
)

// A beginning is what groups that are new in some streams begin with.
type beginning struct {
	streams int
	entries int64
	atMost  bool // the groups begin within what is there: there may be fewer
	again   int  // groups that were there before, and were lost
	oldest  time.Duration
}

// A newGroup is the group in one stream, where it has just been made.
type newGroup struct {
	of    *stream
	start string // the id behind which it begins
	again bool   // it was there before
}

// begin makes streams ready whose groups are new. Those have no progress. What they
// begin with is told: it may be old, and much.
func (r *reader) begin(c *conn, made []newGroup) error {
	if len(made) == 0 {
		return nil
	}
	for _, s := range made {
		c.command(2, "DEL")
		c.text(s.of.progress)
		for _, from := range []string{"-", "(" + s.start} {
			c.command(6, "XRANGE")
			c.text(s.of.stream)
			c.text(from)
			c.text("+")
			c.text("COUNT")
			c.text("1")
		}
		c.command(2, "XLEN")
		c.text(s.of.stream)
	}
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var (
		b    beginning
		said error
	)
	now := r.w.clock()
	for _, s := range made {
		_, gone := c.want(':')
		first, err1 := r.decoder.items(c, nil, 1)
		own, err2 := r.decoder.items(c, nil, 1)
		length, err3 := c.want(':')
		for _, err := range []error{gone, err1, err2, err3} {
			if !usable(err) {
				return err
			}
			said = cmp.Or(said, err)
		}
		b.streams++
		if s.again {
			b.again++
		}
		if len(own) == 0 || len(first) == 0 {
			continue
		}
		b.entries += length
		b.atMost = b.atMost || own[0].id != first[0].id
		if age, ok := r.n.clock.age(own[0].id, now); ok {
			b.oldest = max(b.oldest, age)
		}
	}
	r.tellBeginning(b)
	return said
}

// startOf returns the id behind which a group is to begin in a stream.
func (r *reader) startOf(s *stream) string {
	if s.served {
		return "0" // what was lost is read again, nothing is passed over
	}
	return r.w.start
}

func (r *reader) tellBeginning(b beginning) {
	count := "entries"
	if b.atMost {
		count = "entries_at_most"
	}
	attrs := []slog.Attr{slog.Int("streams", b.streams), slog.Int64(count, b.entries), slog.Duration("oldest", b.oldest.Round(time.Millisecond))}
	if b.again > 0 {
		r.w.begun.log(r.w.log, slog.LevelWarn, "the group was gone from streams and begins again with all that is in them", append(attrs, slog.Int("lost", b.again))...)
		return
	}
	r.w.begun.log(r.w.log, slog.LevelInfo, "the group is new in streams", attrs...)
}
