package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

const (
	lease     = 5 * time.Second // the default
	inHand    = 256
	deadAfter = 4 // attempts
)

// A crew is a run with workers that keep a journal.
type crew struct {
	*run
	server  *redistest.Server // nil: not to be killed
	forward *proctest.Program // the gateway
	path    string
	marks   *os.File
	alive   []*proctest.Program
	rerun   int64 // entries that were pending for processes when they were killed, frozen or stopped
	kills   []kill
}

// A kill is a worker that was killed, with the lanes it held.
type kill struct {
	at    int64 // unix µs
	lanes []string
	quiet bool // nothing else happened until the lanes should run again
}

func newCrew(t *testing.T, redisAddr string, flags ...string) *crew {
	t.Helper()
	return newCrewOf(t, newViolence(t, redisAddr), flags...)
}

func newCrewOf(t *testing.T, r *run, flags ...string) *crew {
	t.Helper()
	c := &crew{run: r, path: filepath.Join(t.TempDir(), "journal")}
	c.flags = append(append(c.flags, "--replay.backoff=50ms", "--replay.backoff_max=400ms",
		fmt.Sprintf("--replay.max_in_hand=%d", inHand), fmt.Sprintf("--replay.max_deliveries=%d", deadAfter)), flags...)
	var err error
	if c.marks, err = os.OpenFile(c.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.marks.Close() })
	return c
}

// join starts one more worker.
func (c *crew) join(t *testing.T) *proctest.Program {
	t.Helper()
	p := startWith(t, new(proctest.Output), []string{"JOURNAL=" + c.path}, "journal", c.flags...)
	c.alive = append(c.alive, p)
	return p
}

func (c *crew) gone(p *proctest.Program) {
	c.alive = slices.DeleteFunc(c.alive, func(q *proctest.Program) bool { return q == p })
}

// mark notes what was done to a process.
func (c *crew) mark(t *testing.T, p *proctest.Program, what string) int64 {
	t.Helper()
	now := time.Now().UnixMicro()
	if _, err := fmt.Fprintf(c.marks, "%d %d %s\n", now, p.Cmd.Process.Pid, what); err != nil {
		t.Fatal(err)
	}
	return now
}

func (c *crew) is(p *proctest.Program, consumer string) bool {
	return strings.Contains(consumer, fmt.Sprintf("-%d-", p.Cmd.Process.Pid))
}

// held returns how many entries are pending for a process, and the lanes it holds.
func (c *crew) held(t *testing.T, p *proctest.Program) (entries int64, lanes []string) {
	t.Helper()
	keys := wire.NewShard(c.prefix, 0, 1)
	for lane := range c.lanes {
		for _, stream := range []string{keys.Stream(lane), keys.Express(lane)} {
			consumers, _ := c.rdb.XInfoConsumers(t.Context(), stream, "workers").Result()
			for _, consumer := range consumers {
				if c.is(p, consumer.Name) {
					entries += consumer.Pending
				}
			}
		}
		if c.is(p, c.rdb.Get(t.Context(), keys.Lease("workers", lane)).Val()) {
			lanes = append(lanes, strconv.Itoa(lane))
		}
	}
	return entries, lanes
}

// kill ends a worker without a word.
func (c *crew) kill(t *testing.T, p *proctest.Program) {
	t.Helper()
	p.Kill()
	at := c.mark(t, p, "killed")
	c.gone(p)
	entries, lanes := c.held(t, p)
	c.rerun += entries
	c.kills = append(c.kills, kill{at: at, lanes: lanes})
}

// freeze stops a worker for some time.
func (c *crew) freeze(t *testing.T, p *proctest.Program, d time.Duration) {
	t.Helper()
	p.Cmd.Process.Signal(syscall.SIGSTOP)
	c.mark(t, p, "frozen")
	entries, _ := c.held(t, p)
	c.rerun += entries
	time.Sleep(d) // the length of the fault
	c.mark(t, p, "woken")
	p.Cmd.Process.Signal(syscall.SIGCONT)
}

// leave stops a worker as an operator does.
func (c *crew) leave(t *testing.T, p *proctest.Program) {
	t.Helper()
	c.gone(p)
	// Before it heeds signals one would end it as the system does.
	proctest.Eventually(t, "it has started", func() bool { return p.Contains("worker starts") })
	if code := p.Stop(t); code != 0 {
		t.Errorf("a worker that was stopped: exit code %d, want 0:\n%s", code, tail(p.Output.String(), 2000))
	}
	c.mark(t, p, "stopped")
}

// A note is a line of the journal.
type note struct {
	at                  int64
	pid                 int
	what                string
	listener, id, guild string
	sequence, attempt   int64
	result              string
}

func (c *crew) journal(t *testing.T) (notes []note) {
	t.Helper()
	file, err := os.Open(c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		var n note
		f := strings.Fields(scanner.Text())
		n.at, _ = strconv.ParseInt(f[0], 10, 64)
		n.pid, _ = strconv.Atoi(f[1])
		n.what = f[2]
		if len(f) >= 8 {
			n.listener, n.id, n.guild = f[3], f[4], f[5]
			n.sequence, _ = strconv.ParseInt(f[6], 10, 64)
			n.attempt, _ = strconv.ParseInt(f[7], 10, 64)
		}
		if len(f) >= 9 {
			n.result = f[8]
		}
		notes = append(notes, n)
	}
	return notes
}

// A plan is a message that was sent.
type plan struct {
	guild   string
	content string
}

// dead returns the listener that the plan makes fail for ever, or "".
func (p plan) dead() string {
	_, who, _ := strings.Cut(p.content, "dead:")
	who, _, _ = strings.Cut(who, " ")
	return who
}

// feed sends count messages over guilds, the first of them the busiest, at rate a
// second. The plans are by sequence.
func (c *crew) feed(ctx context.Context, t *testing.T, count, guilds, rate int) map[int64]plan {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	skew := rand.NewZipf(random, 1.2, 8, uint64(guilds-1))
	plans := make(map[int64]plan, count)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; n < count; {
		select {
		case <-ctx.Done():
			return plans
		case <-tick.C:
		}
		for range max(rate/100, 1) {
			p := plan{guild: strconv.Itoa(7_000_000 + int(skew.Uint64()))}
			switch roll := random.IntN(1000); {
			case roll < 2:
				p.content = "dead:raw slow=1"
			case roll < 3:
				p.content = "dead:typed"
			case roll < 10:
				p.content = "fail:typed=2"
			case roll < 17:
				p.content = "fail:raw=1 slow=3"
			case roll < 40:
				p.content = fmt.Sprintf("slow=%d", 1+random.IntN(40))
			}
			n++
			payload := fmt.Sprintf(`{"id":"%d","channel_id":"%s0","guild_id":"%s","content":"%s","n":%d}`, 1_435_000_000_000_000_000+n, p.guild, p.guild, p.content, n)
			sequence, err := c.discord.Send(0, "MESSAGE_CREATE", []byte(payload))
			if err != nil {
				t.Errorf("send: %v", err)
				return plans
			}
			plans[sequence] = p
		}
	}
	return plans
}

// TestWorkersUnderViolence kills, stops, freezes and adds workers while the
// guilds' messages come in, and holds the journal against what is promised.
func TestWorkersUnderViolence(t *testing.T) {
	t.Parallel()
	count, guilds, rate, pause := 6_000, 100, 500, 1500*time.Millisecond
	longest := 7 * time.Second
	if *full {
		count, guilds, rate, pause = 200_000, 500, 1000, 3*time.Second
		longest = 15 * time.Second
	}
	c := newCrew(t, redistest.Start(t).Addr())
	c.suffer(t, count, guilds, rate, pause, longest, "kill", "freeze", "term", "join")
}

// TestAllUnderViolence does the same, and kills Redis and the gateway too. Redis
// loses nothing that it has confirmed.
func TestAllUnderViolence(t *testing.T) {
	t.Parallel()
	count, guilds, rate, pause := 4_000, 100, 300, time.Second
	longest := time.Second
	if *full {
		count, guilds, rate, pause = 60_000, 500, 400, 3*time.Second
		longest = 15 * time.Second
	}
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	c := newCrew(t, server.Addr())
	c.server = server
	c.suffer(t, count, guilds, rate, pause, longest, "redis", "kill", "gateway", "freeze", "term", "join")
}

// suffer feeds three workers while things are done to them.
func (c *crew) suffer(t *testing.T, count, guilds, rate int, pause, longest time.Duration, kinds ...string) {
	t.Helper()
	c.forward = c.gateway(t)
	for range 3 {
		c.join(t)
	}
	if err := c.discord.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var plans map[int64]plan
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		plans = c.feed(t.Context(), t, count, guilds, rate)
	}()
	did := c.violence(t, fed, pause, longest, kinds)
	if t.Failed() {
		return
	}
	c.drained(t)
	proctest.Eventually(t, "everything is acknowledged", func() bool { return c.pending(t) == 0 })
	for _, p := range slices.Clone(c.alive) {
		c.leave(t, p)
	}
	t.Logf("%d messages over %d guilds; %v", count, guilds, did)
	c.judge(t, plans)
}

// violence does one thing after another to a worker of three until fed is closed;
// each thing at least once.
func (c *crew) violence(t *testing.T, fed <-chan struct{}, pause, longest time.Duration, kinds []string) map[string]int {
	did := make(map[string]int)
	for i := 0; ; i++ {
		kind := kinds[i%len(kinds)]
		if i >= len(kinds) {
			kind = kinds[rand.IntN(len(kinds))]
			select {
			case <-fed:
				return did
			default:
			}
		}
		time.Sleep(pause/2 + rand.N(pause)) // a random moment
		p := c.alive[rand.IntN(len(c.alive))]
		did[kind]++
		switch kind {
		case "kill":
			c.kill(t, p)
			c.join(t)
			if did[kind]%2 == 1 { // or else the next thing may befall who takes over
				c.kills[len(c.kills)-1].quiet = true
				time.Sleep(lease + time.Second)
			}
		case "freeze":
			c.freeze(t, p, time.Second+rand.N(longest))
		case "term":
			c.leave(t, p)
			c.join(t)
		case "redis":
			c.server.Kill()
			c.server.Restart(t)
			proctest.Eventually(t, "redis answers", func() bool { return c.rdb.Ping(t.Context()).Err() == nil })
			// Leases may have run out, and acks been lost: all that is pending may be
			// run again.
			for _, p := range c.alive {
				entries, _ := c.held(t, p)
				c.rerun += entries
			}
		case "gateway":
			c.forward.Kill()
			c.forward = c.gateway(t)
		case "join":
			c.join(t)
			if len(c.alive) > 4 {
				c.leave(t, c.alive[0])
			}
		}
	}
}

// judge holds the journal against the plans.
func (c *crew) judge(t *testing.T, plans map[int64]plan) {
	t.Helper()
	notes := c.journal(t)
	type task struct {
		listener string
		sequence int64
	}
	type unit struct{ listener, guild string } // what is run in order, one at a time
	type running struct {
		note
		frozen bool // it ran when its process was frozen
	}
	var (
		runs     = make(map[task]int)
		ok       = make(map[task]bool)
		last     = make(map[unit]int64) // the last sequence that was begun for the first time
		open     = make(map[unit][]running)
		woken    = make(map[int]int64) // pid: when
		overlaps int
		late     int // begun in the instant of waking
		faults   int
	)
	fault := func(format string, args ...any) {
		if faults++; faults <= 20 {
			t.Errorf(format, args...)
		}
	}
	for _, n := range notes {
		k, u := task{n.listener, n.sequence}, unit{n.listener, n.guild}
		switch n.what {
		case "begin":
			for _, r := range open[u] {
				switch {
				case r.frozen: // the exception that is promised
					overlaps++
				case n.at-woken[n.pid] < 100_000: // it was about to begin when it was frozen
					late++
				default:
					fault("%s of guild %s: %s begun by %d while %d runs %s", n.listener, n.guild, n.id, n.pid, r.pid, r.id)
				}
			}
			open[u] = append(open[u], running{note: n})
			if runs[k]++; runs[k] == 1 {
				if n.sequence <= last[u] {
					fault("%s of guild %s: sequence %d was first begun after %d", n.listener, n.guild, n.sequence, last[u])
				}
				last[u] = n.sequence
			}
		case "end":
			open[u] = slices.DeleteFunc(open[u], func(r running) bool { return r.pid == n.pid && r.id == n.id })
			if n.result == "ok" {
				ok[k] = true
			}
		case "killed", "stopped":
			for u, all := range open {
				open[u] = slices.DeleteFunc(all, func(r running) bool { return r.pid == n.pid })
			}
		case "frozen":
			for _, all := range open {
				for i := range all {
					all[i].frozen = all[i].frozen || all[i].pid == n.pid
				}
			}
		case "woken":
			woken[n.pid] = n.at
		}
	}

	keys := wire.NewShard(c.prefix, 0, 1)
	letters, err := c.rdb.XRange(t.Context(), keys.Dead("workers"), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	dead := make(map[int64]string)
	for _, l := range letters {
		sequence, _ := strconv.ParseInt(l.Values["sequence"].(string), 10, 64)
		if _, twice := dead[sequence]; twice {
			fault("sequence %d is dead twice", sequence)
		}
		dead[sequence] = l.Values["listeners"].(string)
		if plans[sequence].dead() != dead[sequence] {
			fault("sequence %d (%q) is a dead letter of %q: %s", sequence, plans[sequence].content, dead[sequence], l.Values["error"])
		}
	}
	again, planned := 0, 0
	for sequence, p := range plans {
		if want := p.dead(); want != dead[sequence] {
			fault("sequence %d (%q): dead for %q, want %q", sequence, p.content, dead[sequence], want)
		}
		for _, name := range []string{"typed", "raw"} {
			k := task{name, sequence}
			if !ok[k] && p.dead() != name {
				fault("sequence %d (%q) was not handled by %s (%d runs)", sequence, p.content, name, runs[k])
			}
			due := 1
			switch {
			case p.dead() == name:
				due = deadAfter
			case strings.Contains(p.content, "fail:"+name):
				due += int(p.content[strings.Index(p.content, "=")+1] - '0')
			}
			planned += due
			again += max(runs[k]-due, 0)
		}
	}
	// Each entry that was pending for a process when something was done to it may
	// be run again, by both listeners.
	if again > 2*int(c.rerun) {
		t.Errorf("%d runs more than planned, want at most two for each of the %d entries that were in hand", again, c.rerun)
	}
	t.Logf("%d runs planned, %d more; %d entries were in hand at kills and freezes; %d dead letters; %d runs beside a frozen one, %d begun on waking",
		planned, again, c.rerun, len(letters), overlaps, late)
	c.judgeKills(t, notes)
	if faults > 0 {
		t.Errorf("%d faults", faults)
	}
}

// judgeKills looks at when the lanes of the killed ran again.
func (c *crew) judgeKills(t *testing.T, notes []note) {
	t.Helper()
	var took []time.Duration
	for _, k := range c.kills {
		if !k.quiet {
			continue
		}
		waiting := make(map[string]bool)
		for _, lane := range k.lanes {
			waiting["0/"+lane+"/"] = true
		}
		for _, n := range notes {
			if n.at <= k.at || n.what != "begin" {
				continue
			}
			lane := n.id[:strings.LastIndexByte(n.id, '/')+1]
			if waiting[lane] {
				delete(waiting, lane)
				took = append(took, time.Duration(n.at-k.at)*time.Microsecond)
			}
		}
	}
	if len(took) == 0 {
		return // killed when all was handled
	}
	slices.Sort(took)
	longest := took[len(took)-1]
	t.Logf("%d lanes of killed workers ran again: median %v, longest %v", len(took), took[len(took)/2].Round(time.Millisecond), longest.Round(time.Millisecond))
	if *full && longest > lease+time.Second {
		t.Errorf("a killed worker's lane ran again after %v, want at most %v", longest, lease+time.Second)
	}
}

// TestPoison has an entry end every process that runs it, among a thousand others.
func TestPoison(t *testing.T) {
	t.Parallel()
	c := newCrew(t, redistest.Addr(t), "--replay.lease=3s") // a busy machine may hold a process up for a second
	c.gateway(t)
	if err := c.discord.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var poison int64
	for n := range 1000 {
		content := "slow=2"
		if n == 300 {
			content = "die:raw"
		}
		sequence, err := c.discord.Send(0, "MESSAGE_CREATE", fmt.Appendf(nil, `{"id":"%d","channel_id":"1","guild_id":"%d","content":"%s"}`, n+1, 1+n%20, content))
		if err != nil {
			t.Fatal(err)
		}
		if n == 300 {
			poison = sequence
		}
	}
	c.drained(t)
	c.join(t)
	c.join(t)
	proctest.Eventually(t, "everything is settled", func() bool {
		for _, p := range slices.Clone(c.alive) {
			select {
			case <-p.Ended: // a supervisor starts it again
				c.mark(t, p, "killed")
				c.gone(p)
				c.join(t)
			default:
			}
		}
		return c.pending(t) == 0
	})
	for _, p := range slices.Clone(c.alive) {
		c.leave(t, p)
	}
	begun, handled := 0, make(map[string]bool)
	for _, n := range c.journal(t) {
		if n.what == "begin" && n.sequence == poison && n.listener == "raw" {
			begun++
		}
		if n.result == "ok" {
			handled[n.listener+n.id] = true
		}
	}
	if begun != deadAfter {
		t.Errorf("the poison was begun %d times, want %d", begun, deadAfter)
	}
	if len(handled) < 1999 { // the poison's other listener may have been killed each time
		t.Errorf("%d runs succeeded, want 1999 or 2000", len(handled))
	}
	letters, err := c.rdb.XRange(t.Context(), wire.NewShard(c.prefix, 0, 1).Dead("workers"), "-", "+").Result()
	if err != nil || len(letters) != 1 || letters[0].Values["sequence"] != strconv.FormatInt(poison, 10) {
		t.Errorf("dead letters: %v, %v; want one, of sequence %d", letters, err, poison)
	}
}
