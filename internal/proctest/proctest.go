// Package proctest runs programs in tests: what is promised about kill -9, about
// signals and about exit codes is tested on real processes.
package proctest

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a program may take for what is wanted of it.
const patience = 60 * time.Second

// Eventually polls until done returns true, and fails the test if that takes more
// than a minute.
func Eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Env returns the environment without what would configure our programs, and
// with more.
func Env(more ...string) (env []string) {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "SLUICE_") && !strings.HasPrefix(pair, "DISCORD_") {
			env = append(env, pair)
		}
	}
	return append(env, more...)
}

// An Output keeps what is written to it. Safe for concurrent use, also by several
// programs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// A Process is a running child.
type Process struct {
	Cmd   *exec.Cmd
	Ended chan struct{} // closed when it has been waited for
	Err   error         // of Wait; to be read after Ended
}

// Spawn starts cmd, so that it dies with the test binary where the system can do
// that.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	started := make(chan error, 1)
	// It ends with the process. The thread that started it must live as long,
	// because its end counts as the parent's.
	go func() {
		defer close(p.Ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Kill ends the process without a word, and returns once it is gone.
func (p *Process) Kill() {
	p.Cmd.Process.Kill() // an error means that it has ended
	<-p.Ended
}

// A Program is a process of a test.
type Program struct {
	*Process
	Output *Output // both its outputs, but for what Start was told to write elsewhere
}

// Start starts a program in a folder of its own, unless cmd has one. What it
// writes goes to its Output (that of cmd.Stdout, if there is one already), unless
// cmd says where else. It is killed when the test ends; what it wrote is shown if
// the test failed.
func Start(tb testing.TB, cmd *exec.Cmd) *Program {
	tb.Helper()
	p := &Program{Output: new(Output)}
	if out, is := cmd.Stdout.(*Output); is {
		p.Output = out
	}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Output
	}
	if cmd.Dir == "" {
		cmd.Dir = tb.TempDir()
	}
	var err error
	if p.Process, err = Spawn(cmd); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("%v:\n%s", cmd.Args, tail(p.Output.String()))
			if other, is := cmd.Stderr.(*Output); is && other != p.Output {
				tb.Logf("its errors:\n%s", tail(other.String()))
			}
		}
	})
	return p
}

func tail(text string) string { return text[max(0, len(text)-6000):] }

// Signal sends the program a signal.
func (p *Program) Signal(tb testing.TB, sig os.Signal) {
	tb.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

// Wait returns the program's exit code once it has ended; -1 if a signal ended it.
func (p *Program) Wait(tb testing.TB) int {
	tb.Helper()
	select {
	case <-p.Ended:
	case <-time.After(patience):
		tb.Fatalf("%s has not ended within %v:\n%s", p.Cmd.Path, patience, tail(p.Output.String()))
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Stop asks the program to end, as a supervisor does, and returns its exit code.
func (p *Program) Stop(tb testing.TB) int {
	tb.Helper()
	p.Signal(tb, syscall.SIGTERM)
	return p.Wait(tb)
}

// StopsCleanly is Stop for a program that is to end with 0.
func (p *Program) StopsCleanly(tb testing.TB) {
	tb.Helper()
	p.Signal(tb, syscall.SIGTERM)
	p.Ends(tb, 0)
}

// Ends waits until the program has ended, and wants this exit code of it.
func (p *Program) Ends(tb testing.TB, code int) {
	tb.Helper()
	if got := p.Wait(tb); got != code {
		tb.Errorf("%s: exit code %d, want %d", p.Cmd.Path, got, code)
	}
}

// Prints waits until every one of the lines is in the program's Output.
func (p *Program) Prints(tb testing.TB, lines ...string) {
	tb.Helper()
	for _, line := range lines {
		Eventually(tb, "it prints "+line, func() bool {
			return strings.Contains("\n"+p.Output.String(), "\n"+line+"\n")
		})
	}
}

// Contains reports whether the program's Output has text in it.
func (p *Program) Contains(text string) bool { return strings.Contains(p.Output.String(), text) }
