package replay_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/replay"
)

// A lockedLog takes log lines from several goroutines.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the first line that has a text.
func (l *lockedLog) with(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// TestANewGroupSaysWhatItBeginsWith, and so does one that was lost.
func TestANewGroupSaysWhatItBeginsWith(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start func(second string) string
		want  []string
	}{
		"with all":         {func(string) string { return "0" }, []string{" entries=3 ", "oldest=1m4"}},
		"with the rest":    {func(second string) string { return second }, []string{" entries_at_most=3 ", "oldest=19."}},
		"with what is new": {func(string) string { return "$" }, []string{" entries=0 ", "oldest=0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			guild := d.guild(0, 1)
			d.putAged("MESSAGE_CREATE", guild, 100*time.Second, 0)
			d.putAged("MESSAGE_CREATE", guild, 40*time.Second, 0)
			d.putAged("MESSAGE_CREATE", guild, 19*time.Second, 0)
			all := d.rdb.XRange(t.Context(), d.stream(guild, false), "-", "+").Val()
			var rec recorder
			log := &lockedLog{}
			d.run(registry("l", "#", rec.listen), replay.Config{Start: test.start(all[1].ID), Logger: slog.New(slog.NewTextHandler(log, nil))})
			waitFor(t, "the group is told of", func() bool { return log.with("the group is new") != "" && log.with("entries") != "" })
			line := ""
			waitFor(t, "the lane's stream", func() bool {
				line = log.with("oldest=" + strings.TrimPrefix(test.want[1], "oldest="))
				return line != ""
			})
			if !strings.Contains(line, test.want[0]) || !strings.Contains(line, "level=INFO") {
				t.Errorf("it says %q, want %q", line, test.want)
			}
			if name != "with all" {
				return
			}
			waitFor(t, "acked", func() bool { return d.settled("workers") })
			if err := d.rdb.XGroupDestroy(t.Context(), wire.NewShard(d.prefix, 0, 1).Stream(0), "workers").Err(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "its loss is told", func() bool {
				line = log.with("the group was gone")
				return strings.Contains(line, "lost=1") && strings.Contains(line, " entries=3 ")
			})
		})
	}
}
