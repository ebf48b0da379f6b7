package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// TestMain is the main of the workers that tests start as processes, too.
func TestMain(m *testing.M) {
	if text := os.Getenv(recipeEnv); text != "" {
		os.Exit(workerMain(text))
	}
	redistest.Main(m)
}

const recipeEnv = "REPLAY_TEST_WORKER"

// A recipe is what a worker in a process of its own is made of. Its listeners do
// what an entry's payload says under "do".
type recipe struct {
	Addr, Prefix, Name string
	Lease, Drain       time.Duration
	Deliveries         int
	Listeners          []string // names; none: one of the name l
}

// A happening is what the listeners of processes note in Redis, in its order.
type happening struct {
	PID      int
	What     string // start, end
	Listener string
	Seq      int64
	Guild    string
	Attempt  int
	Over     bool // the context had ended
}

// workerMain is the worker. It ends with the standard input, so with the test.
func workerMain(text string) int {
	var r recipe
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(4)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr})
	registry := listener.New()
	if len(r.Listeners) == 0 {
		r.Listeners = []string{"l"}
	}
	for _, name := range r.Listeners {
		registry.Add(listener.Handle(name, "#", func(ctx context.Context, d *listener.Delivery) error {
			note := func(what string) {
				text, _ := json.Marshal(happening{os.Getpid(), what, name, d.Sequence, d.GuildID, d.Attempt, ctx.Err() != nil})
				if err := rdb.RPush(context.Background(), r.Prefix+":happenings", text).Err(); err != nil {
					os.Exit(5)
				}
			}
			note("start")
			err := obey(ctx, d)
			note("end")
			return err
		}))
	}
	w, err := replay.New(rdb, registry, replay.Config{
		Prefix: r.Prefix, Consumer: r.Name, Lease: r.Lease, DrainTimeout: r.Drain, MaxDeliveries: r.Deliveries,
		Backoff: time.Millisecond, BackoffMax: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(logTo, nil)),
	})
	if err != nil {
		return 3
	}
	if err := w.Run(ctx); err != nil {
		return 1
	}
	return 0
}

// obey does what a payload says: nothing, fail, kill, exit or a duration to wait.
func obey(ctx context.Context, d *listener.Delivery) error {
	raw, _ := d.Field("do")
	do, _ := strconv.Unquote(string(raw))
	switch do {
	case "":
		return nil
	case "fail":
		return errors.New("told to fail")
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exit":
		os.Exit(137)
	}
	wait, err := time.ParseDuration(do)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A process is a worker in a process of its own.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	name string
	done chan struct{} // closed when it has ended
}

// start starts a worker in a process of its own, and ends it with the test.
func (d *deployment) start(r recipe) *process {
	d.t.Helper()
	r.Addr, r.Prefix = d.addr, d.prefix
	text, err := json.Marshal(r)
	if err != nil {
		d.t.Fatal(err)
	}
	p := &process{t: d.t, cmd: exec.Command(os.Args[0]), name: r.Name, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), recipeEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait()
		stdin.Close()
	}()
	d.t.Cleanup(p.kill)
	return p
}

func (p *process) signal(sig syscall.Signal) { p.cmd.Process.Signal(sig) }

// kill ends the process as a crash would.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop ends the process as an operator would and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.code()
}

// code waits for the process to end and returns its exit code; -1: it was killed.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("worker %s has not ended within 30s", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// happenings returns what the listeners of processes have noted so far.
func (d *deployment) happenings() (all []happening) {
	d.t.Helper()
	for _, text := range d.rdb.LRange(d.t.Context(), d.prefix+":happenings", 0, -1).Val() {
		var h happening
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// starts counts the starts by sequence.
func (d *deployment) starts() map[int64]int {
	n := map[int64]int{}
	for _, h := range d.happenings() {
		if h.What == "start" {
			n[h.Seq]++
		}
	}
	return n
}

// tell appends an entry of a guild whose payload says what is to be done, and
// returns its stream id.
func (d *deployment) tell(guild, do string) string {
	d.t.Helper()
	return d.put(false, []string{guild}, []wire.Entry{d.order(guild, do)})[0]
}

// order returns an entry that says what is to be done.
func (d *deployment) order(guild, do string) wire.Entry {
	e := d.entry("MESSAGE_CREATE", guild)
	e.Payload = fmt.Appendf(nil, `{"guild_id":"%s","do":"%s"}`, guild, do)
	return e
}

// holds waits until the leases are held as want says: map[name:lanes …].
func (d *deployment) holds(want string) {
	d.t.Helper()
	waitFor(d.t, "the leases are "+want, func() bool { return fmt.Sprint(d.holders("workers")) == want })
}

// A journal is a log that a test can look into.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Write(line []byte) (int, error) {
	logTo.Write(line)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(line))
	return len(line), nil
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// with returns the lines that have all of the texts.
func (j *journal) with(texts ...string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
next:
	for _, line := range j.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}
