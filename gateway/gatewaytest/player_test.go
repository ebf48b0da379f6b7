package gatewaytest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

// guild returns the id of the nth guild of a shard of two.
func guild(n, shard int) string { return fmt.Sprint(uint64(900+2*n+shard)<<22 | 5) }

// recording is a session of n dispatches over four guilds of two shards, every
// tenth without a guild.
func recording(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"t":"READY","s":1,"op":0,"d":{"v":10,"guilds":[{"id":%q,"unavailable":true},{"id":%q},{"id":%q},{"id":%q}],"session_id":"old","shard":[0,1]}}`+"\n",
		guild(0, 0), guild(0, 1), guild(1, 0), guild(1, 1))
	b.WriteString(`{"t":null,"s":null,"op":11,"d":null}` + "\n\n" + `{"t":"RESUMED","s":2,"op":0,"d":{}}` + "\n")
	for i := range n {
		switch {
		case i%10 == 0:
			fmt.Fprintf(&b, `{"t":"MESSAGE_CREATE","s":%d,"op":0,"d":{"channel_id":"4","n":%d}}`, i+3, i)
		case i%10 == 1: // a guild's own dispatches say id
			fmt.Fprintf(&b, `{"op":0,"s":%d,"t":"GUILD_UPDATE","d":{"id":%q,"n":%d}}`, i+3, guild(i/20%2, i/10%2), i)
		default:
			fmt.Fprintf(&b, `{"t":"TYPING_START","s":%d,"op":0,"d":{"guild_id":%q,"n":%d,"pad":%q}}`, i+3, guild(i%2, i/2%2), i, strings.Repeat("x", i%7*40))
		}
		if i < n-1 {
			b.WriteByte('\n') // the last line has none
		}
	}
	return b.String()
}

// shardOf is the shard recording's dispatch i belongs to.
func shardOf(i int) int {
	switch i % 10 {
	case 0:
		return 0
	case 1:
		return i / 10 % 2
	}
	return i / 2 % 2
}

// numbers returns the n of each dispatch that has one, in its order.
func numbers(t *testing.T, c *collector) (ns []int) {
	t.Helper()
	for _, d := range c.all() {
		var body struct{ N *int }
		ok(t, json.Unmarshal(d.Data, &body))
		if body.N != nil {
			ns = append(ns, *body.N)
		}
	}
	return ns
}

func TestPlay(t *testing.T) {
	t.Parallel()
	for _, o := range []gatewaytest.PlayOptions{{}, {Window: 1}, {Rate: 20_000}} {
		t.Run(fmt.Sprint(o), func(t *testing.T) {
			t.Parallel()
			const n = 3000
			log := &lines{}
			s := start(t, gatewaytest.Config{Shards: 2, Log: log, Ready: gatewaytest.Withhold})
			all := shards(t, s, 2)
			ok(t, s.WaitIdentifies(within(t), 2))
			played := make(chan error, 1)
			go func() {
				count, err := s.Play(within(t), strings.NewReader(recording(n)), o)
				if err == nil && count != n {
					err = fmt.Errorf("played %d, want %d", count, n)
				}
				played <- err
			}()
			ok(t, <-played)
			total := 0
			for shard, c := range all {
				var want []int
				for i := range n {
					if shardOf(i) == shard {
						want = append(want, i)
					}
				}
				poll(t, "all dispatches", func() bool { return len(c.all()) >= len(want)+1 })
				if got := numbers(t, c); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("shard %d got %d dispatches, want %d: %.100v…, want %.100v…", shard, len(got), len(want), got, want)
				}
				for i, d := range c.all() {
					if d.Sequence != int64(i+1) {
						t.Fatalf("shard %d: dispatch %d has sequence %d", shard, i, d.Sequence)
					}
				}
				total += len(c.all())
				ready := string(c.all()[0].Data)
				if !strings.Contains(ready, guild(0, shard)) || !strings.Contains(ready, guild(1, shard)) || strings.Contains(ready, guild(0, 1-shard)) || strings.Contains(ready, `"old"`) {
					t.Errorf("shard %d: READY is %s", shard, ready)
				}
			}
			logged := log.all()
			if len(logged) != total {
				t.Fatalf("%d lines logged, want %d", len(logged), total)
			}
			next := make(map[string]int64)
			for _, line := range logged {
				var l struct {
					Shard   *int
					Session string
					S       int64
					T       string
					D       json.RawMessage
				}
				ok(t, json.Unmarshal([]byte(line), &l))
				if next[l.Session]++; l.S != next[l.Session] || l.Shard == nil || l.Session != s.SessionID(*l.Shard) || l.T == "" || l.D == nil {
					t.Fatalf("logged %s, want sequence %d", line, next[l.Session])
				}
			}
		})
	}
}

func TestPlayOverBreaks(t *testing.T) {
	t.Parallel()
	const n = 6000
	s := start(t, gatewaytest.Config{})
	all := shards(t, s, 2)
	played := make(chan error, 1)
	go func() {
		_, err := s.Play(within(t), strings.NewReader(recording(n)), gatewaytest.PlayOptions{Window: 20})
		played <- err
	}()
	for round := 1; round <= 3; round++ {
		poll(t, "some", func() bool { return len(all[0].all()) > round*300 })
		s.DropConnections()
		ok(t, s.WaitResumes(within(t), round*2))
		ok(t, s.WaitConnected(within(t), 0, 1))
	}
	ok(t, s.Invalidate(0, false))
	ok(t, s.WaitIdentifies(within(t), 3))
	ok(t, <-played)
	sent := map[string]int{}
	for _, d := range s.Sent() {
		sent[d.Session]++
	}
	if len(sent) != 3 {
		t.Fatalf("%d sessions, want 3", len(sent))
	}
	// Shard 1 lost nothing; shard 0 what was under way when its session ended.
	var want []int
	for i := range n {
		if shardOf(i) == 1 {
			want = append(want, i)
		}
	}
	poll(t, "shard 1", func() bool { return len(numbers(t, all[1])) >= len(want) })
	if got := numbers(t, all[1]); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("shard 1 got %d dispatches, want %d, each once and in order", len(got), len(want))
	}
	last := s.SessionID(0)
	poll(t, "shard 0", func() bool {
		count := 0
		for _, d := range all[0].all() {
			if d.SessionID == last {
				count++
			}
		}
		return count == sent[last]
	})
	for _, d := range all[0].all() {
		if d.SessionID == last {
			if d.Type != "READY" || d.Sequence != 1 || !strings.Contains(string(d.Data), guild(0, 0)) {
				t.Errorf("the new session began with %s %d %s, want READY of the recording", d.Type, d.Sequence, d.Data)
			}
			break
		}
	}
	if sent[last] < 100 {
		t.Errorf("%d dispatches in the new session, want the rest of the recording", sent[last])
	}
}

func TestPlayErrors(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	_, err := s.Play(t.Context(), strings.NewReader("\n"+`{"t":"READY","d":{}}`+"\n"+`{"t":`), gatewaytest.PlayOptions{})
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("half a line: %v, want line 3 named", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := s.Play(ctx, strings.NewReader(recording(3)), gatewaytest.PlayOptions{}); !errors.Is(err, enough) {
		t.Errorf("without shards: %v, want %v", err, enough)
	}
}

func TestPlayKeepsItsRate(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	shards(t, s, 1)
	ok(t, s.WaitIdentifies(within(t), 1))
	began := time.Now()
	_, err := s.Play(within(t), strings.NewReader(recording(101)), gatewaytest.PlayOptions{Rate: 500})
	ok(t, err)
	if took := time.Since(began); took < 195*time.Millisecond {
		t.Errorf("101 dispatches at 500 a second took %v, want 200 ms", took)
	}
}

func TestPlayLongLines(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Config{})
	c := shards(t, s, 1)[0]
	long := strings.Repeat("y", 3<<20)
	text := recording(2) + "\n" + fmt.Sprintf(`{"t":"GUILD_CREATE","s":9,"op":0,"d":{"id":"1","pad":%q}}`, long) + "\n" +
		`{"t":"MESSAGE_DELETE","s":10,"op":0,"d":{}}`
	_, err := s.Play(within(t), strings.NewReader(text), gatewaytest.PlayOptions{})
	ok(t, err)
	poll(t, "five dispatches", func() bool { return len(c.all()) == 5 })
	if got := c.all()[3]; got.Type != "GUILD_CREATE" || !strings.Contains(string(got.Data), long) {
		t.Errorf("got %s with %d bytes", got.Type, len(got.Data))
	}
}
