// Journal is a worker for the tests of this folder: its listeners do what the
// messages they get say, and write down when they begin and end. All processes
// append to one file, a write a line, so that its order is the order in which
// things happened, whoever is killed:
//
//	<unix µs> <pid> begin <listener> <id> <guild> <sequence> <attempt>
//	<unix µs> <pid> end <listener> <id> <guild> <sequence> <attempt> <result>
//
// A message's content is a plan, made of words: "slow=<ms>" both listeners take so
// long, "fail:<listener>=<n>" its first n attempts fail, "dead:<listener>" all of
// them do, "die:<listener>" the process ends while it runs. Other words mean
// nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/listener"
)

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		file, err := os.OpenFile(os.Getenv("JOURNAL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		env.OnStop(func(context.Context) error { return file.Close() })
		j := &journal{file: file, pid: os.Getpid()}
		env.Add(
			listener.MessageCreate.Handle("typed", func(ctx context.Context, e *listener.Event[*discordgo.MessageCreate, listener.None]) error {
				return j.run(ctx, &e.Delivery, e.New.Content)
			}),
			listener.Handle("raw", "MESSAGE_CREATE", func(ctx context.Context, d *listener.Delivery) error {
				content, _ := d.Field("content")
				plan, err := strconv.Unquote(string(content))
				if err != nil {
					return listener.Discard(err)
				}
				return j.run(ctx, d, plan)
			}),
		)
		return nil
	})
}

type journal struct {
	file *os.File
	pid  int
}

func (j *journal) line(what string, d *listener.Delivery, more string) {
	line := fmt.Sprintf("%d %d %s %s %s %s %d %d%s\n", time.Now().UnixMicro(), j.pid, what, d.Listener, d.ID, d.GuildID, d.Sequence, d.Attempt, more)
	if _, err := j.file.WriteString(line); err != nil {
		panic(err) // the test would count wrongly
	}
}

func (j *journal) run(ctx context.Context, d *listener.Delivery, plan string) error {
	j.line("begin", d, "")
	err := follow(ctx, d, plan)
	result := " ok"
	if err != nil {
		result = " failed"
	}
	j.line("end", d, result)
	return err
}

var errPlanned = errors.New("planned")

func follow(ctx context.Context, d *listener.Delivery, plan string) error {
	for word := range strings.FieldsSeq(plan) {
		name, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		what, who, _ := strings.Cut(name, ":")
		if who != "" && who != d.Listener {
			continue
		}
		switch what {
		case "slow":
			timer := time.NewTimer(time.Duration(n) * time.Millisecond)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return context.Cause(ctx)
			}
		case "fail":
			if d.Attempt <= n {
				return errPlanned
			}
		case "dead":
			return errPlanned
		case "die":
			os.Exit(137)
		}
	}
	return nil
}
