package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

func deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Show the dead letters of a group, and give them to its listeners again",
		Long: `Show the dead letters of a group (--replay.group): entries for which a listener was given
up. A letter's id is <shard>/<stream id>.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deadLsCommand(), deadShowCommand(), deadRetryCommand())
	return cmd
}

// A morgue is where a group's dead letters are.
type morgue struct {
	rdb      redis.UniversalClient
	prefix   string
	group    string
	topology wire.Topology
}

// inMorgue returns what a subcommand runs: f with the group's dead letters.
func inMorgue(f func(ctx context.Context, m *morgue, args []string, stdout io.Writer) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cfg, err := config.FromFlags(cmd.Flags())
		if err != nil {
			return err
		}
		rdb, err := redisclient.New(cfg.Redis.URL)
		if err != nil {
			return err
		}
		defer rdb.Close()
		topology, err := recorded(cmd.Context(), rdb, cfg.Redis.Prefix)
		if err != nil {
			return err
		}
		m := &morgue{rdb: rdb, prefix: cfg.Redis.Prefix, group: cfg.Replay.Group, topology: topology}
		return f(cmd.Context(), m, args, cmd.OutOrStdout())
	}
}

func (m *morgue) key(shard int) string { return m.shard(shard).Dead(m.group) }

func (m *morgue) shard(id int) wire.Shard { return wire.NewShard(m.prefix, id, m.topology.Shards) }

// A letterID says which letter.
type letterID struct {
	shard int
	id    entryID
}

func (l letterID) String() string { return strconv.Itoa(l.shard) + "/" + l.id.String() }

func (m *morgue) parse(text string) (l letterID, err error) {
	shard, id, _ := strings.Cut(text, "/")
	l.shard, err = strconv.Atoi(shard)
	var ok bool
	if l.id, ok = parseID(id); !ok || err != nil || !strings.Contains(id, "-") {
		return l, wrongf("%q is no letter's id, which is <shard>/<stream id> (0/1700000000000-0)", text)
	}
	if l.shard < 0 || l.shard >= m.topology.Shards {
		return l, wrongf("%q: the shard is %d, want 0 to %d", text, l.shard, m.topology.Shards-1)
	}
	return l, nil
}

// letterFields are the fields that a letter has behind the entry's own.
var letterFields = [...]string{"id", "stream", "group", "consumer", "deliveries", "listeners", "error", "failed"}

// A letter is a dead letter as it is shown.
type letter struct {
	at     letterID
	shown  *shown            // the entry
	fields map[string]string // letterFields
}

// read returns a letter, nil if there is none of this id.
func (m *morgue) read(ctx context.Context, at letterID) (*letter, error) {
	found, err := m.rdb.XRangeN(ctx, m.key(at.shard), at.id.String(), at.id.String(), 1).Result()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return m.open(at.shard, found[0]), nil
}

func (m *morgue) open(shard int, message redis.XMessage) *letter {
	l := &letter{at: letterID{shard: shard}, fields: map[string]string{}}
	l.at.id, _ = parseID(message.ID) // Redis writes no other
	for _, name := range letterFields {
		l.fields[name], _ = message.Values[name].(string)
		delete(message.Values, name)
	}
	s := &stream{key: l.fields["stream"], shard: shard}
	_, name, _ := strings.Cut(s.key, "}:")
	kind, lane, _ := strings.Cut(name, ":")
	s.express = kind == "express"
	s.lane, _ = strconv.Atoi(lane)
	message.ID = l.fields["id"]
	l.shown = newShown(s, message)
	return l
}

// target is what the letter's entry is marked with when it is redriven: only the
// listeners that failed are to have it, or all of the group if none could.
func (l *letter) target(group string) string { return group + ":" + l.fields["listeners"] }

func (l *letter) failed() time.Time {
	ms, _ := strconv.ParseInt(l.fields["failed"], 10, 64)
	return time.UnixMilli(ms).UTC()
}

// newest returns the last letters of all shards, newest first.
func (m *morgue) newest(ctx context.Context, n int) ([]*letter, error) {
	var all []*letter
	for shard := range m.topology.Shards {
		found, err := m.rdb.XRevRangeN(ctx, m.key(shard), "+", "-", int64(n)).Result()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", m.key(shard), err)
		}
		for _, message := range found {
			all = append(all, m.open(shard, message))
		}
	}
	slices.SortStableFunc(all, func(a, b *letter) int { return b.at.id.compare(a.at.id) })
	return all[:min(n, len(all))], nil
}

func deadLsCommand() *cobra.Command {
	var number int
	var output string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List dead letters, the newest first",
		Long: `List dead letters, the newest first. A line has the time, the letter's id, the entry's
type and ids, its deliveries, the listeners that failed and the first line of the error.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = inMorgue(func(ctx context.Context, m *morgue, _ []string, stdout io.Writer) error {
		if number < 1 {
			return wrongf("--number is %d, want 1 or more", number)
		}
		if err := checkOutput(output); err != nil {
			return err
		}
		all, err := m.newest(ctx, number)
		if err != nil {
			return err
		}
		for _, l := range all {
			if output == "json" {
				err = l.writeJSON(stdout, m)
			} else {
				err = l.writeLine(stdout)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().IntVarP(&number, "number", "n", 20, "how many")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	settings(cmd, "redis.url", "redis.prefix", "replay.group")
	return cmd
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return wrongf("--output is %q, want text or json", output)
	}
	return nil
}

func (l *letter) writeLine(w io.Writer) error {
	var b strings.Builder
	event := "(not readable)"
	if l.shown.err == nil {
		event = l.shown.entry.Event
	}
	fmt.Fprintf(&b, "%s %s %s", l.failed().Format(timeFormat), l.at, event)
	if l.shown.err == nil {
		l.shown.writeIDs(&b)
	}
	fmt.Fprintf(&b, " deliveries=%s", l.fields["deliveries"])
	if names := l.fields["listeners"]; names != "" {
		fmt.Fprintf(&b, " listeners=%s", names)
	}
	first, rest, more := strings.Cut(l.fields["error"], "\n")
	b.WriteString(" " + first)
	if more {
		fmt.Fprintf(&b, " (and %d more)", strings.Count(rest, "\n")+1)
	}
	_, err := fmt.Fprintln(w, printable(b.String()))
	return err
}

// A letterLine is a letter as --output json has it.
type letterLine struct {
	Letter     string   `json:"letter"`
	Group      string   `json:"group"`
	Failed     int64    `json:"failed"` // unix ms
	Deliveries int      `json:"deliveries"`
	Consumer   string   `json:"consumer"`
	Listeners  []string `json:"listeners"`
	Errors     []string `json:"errors"` // a line for each listener
	Entry      line     `json:"entry"`
}

func (l *letter) writeJSON(w io.Writer, m *morgue) error {
	deliveries, _ := strconv.Atoi(l.fields["deliveries"])
	out := letterLine{
		Letter: l.at.String(), Group: m.group, Failed: l.failed().UnixMilli(), Deliveries: deliveries, Consumer: l.fields["consumer"],
		Listeners: []string{}, Errors: strings.Split(l.fields["error"], "\n"), Entry: newLine(l.shown),
	}
	if names := l.fields["listeners"]; names != "" {
		out.Listeners = strings.Split(names, ",")
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

func deadShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a dead letter: why it is one, the payload and the state before",
		Example: "  sluice dead show 0/1932963600000-0",
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = inMorgue(func(ctx context.Context, m *morgue, args []string, stdout io.Writer) error {
		if err := checkOutput(output); err != nil {
			return err
		}
		at, err := m.parse(args[0])
		if err != nil {
			return err
		}
		l, err := m.read(ctx, at)
		if err != nil {
			return err
		}
		if l == nil {
			return m.none(at)
		}
		if output == "json" {
			return l.writeJSON(stdout, m)
		}
		return l.write(stdout, m)
	})
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	settings(cmd, "redis.url", "redis.prefix", "replay.group")
	return cmd
}

func (m *morgue) none(at letterID) error {
	return fmt.Errorf("group %s has no dead letter %s; sluice dead ls shows those there are", m.group, at)
}

// write writes all of a letter.
func (l *letter) write(w io.Writer, m *morgue) error {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s %s\n", name, printable(value))
		}
	}
	row("letter", l.at.String())
	row("group", m.group)
	row("failed", l.failed().Format(timeFormat))
	row("deliveries", l.fields["deliveries"])
	row("consumer", l.fields["consumer"])
	row("listeners", l.fields["listeners"])
	for line := range strings.SplitSeq(l.fields["error"], "\n") {
		row("error", line)
	}
	row("entry", l.shown.name())
	if l.shown.err != nil {
		row("unreadable", l.shown.err.Error())
		row("fields", fmt.Sprint(l.shown.values))
		_, err := io.WriteString(w, b.String())
		return err
	}
	e := &l.shown.entry
	row("event", e.Event)
	row("sequence", strconv.FormatInt(e.Sequence, 10))
	row("session", e.Session)
	row("received", time.UnixMilli(e.Received).UTC().Format(timeFormat))
	row("flags", e.Flags.String())
	row("trace", e.Trace)
	row("target", e.Target)
	b.WriteString("payload\n" + indented(e.Payload) + "\n")
	if len(e.State) > 0 {
		b.WriteString("state before\n" + indented(e.State) + "\n")
	} else {
		b.WriteString("state before: not known\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// indented returns JSON on several lines, or what is none as it is.
func indented(text []byte) string {
	var lines []string
	pretty, err := json.MarshalIndent(json.RawMessage(text), "  ", "  ")
	if err != nil {
		pretty = text
	}
	for line := range strings.SplitSeq(string(pretty), "\n") {
		lines = append(lines, printable(line))
	}
	return "  " + strings.Join(lines, "\n")
}

// redrive gives a dead letter's entry to its group again.
//
// KEYS[1] dead letters, KEYS[2] the entry's stream. ARGV[1] letter's id, ARGV[2]
// the entry's target, ARGV[3] how many fields of the letter, at its end, are not
// the entry's own.
// Returns the entry's new id; nothing if there is no such letter.
var redrive = redis.NewScript(`
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return false
end
local own = {}
local marked = false
for i = 1, #found[1][2] - 2 * ARGV[3], 2 do
  local name, value = found[1][2][i], found[1][2][i + 1]
  if name == 'target' then
    value = ARGV[2]
    marked = true
  end
  own[#own + 1] = name
  own[#own + 1] = value
end
if not marked then
  own[#own + 1] = 'target'
  own[#own + 1] = ARGV[2]
end
local id = redis.call('XADD', KEYS[2], '*', unpack(own))
redis.call('XDEL', KEYS[1], ARGV[1])
return id
`)

func deadRetryCommand() *cobra.Command {
	var every bool
	cmd := &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Give dead letters to the listeners that failed, again",
		Long: `Give dead letters to the listeners that failed, again: each entry goes back to the end of
its own stream, marked for its group and these listeners, and is a dead letter no more.
Other groups pass it over. What could not be read goes to all listeners of the group.`,
		Example: "  sluice dead retry 0/1932963600000-0\n  sluice dead retry --all --replay.group analytics",
	}
	cmd.RunE = inMorgue(func(ctx context.Context, m *morgue, args []string, stdout io.Writer) error {
		if every == (len(args) > 0) {
			return wrongf("want the ids of letters, or --all")
		}
		if every {
			return m.retryAll(ctx, stdout)
		}
		var ids []letterID
		for _, arg := range args {
			at, err := m.parse(arg)
			if err != nil {
				return err
			}
			ids = append(ids, at)
		}
		var errs []error
		for _, at := range ids {
			l, err := m.read(ctx, at)
			if err == nil && l == nil {
				err = m.none(at)
			}
			if err == nil {
				err = m.retry(ctx, l, stdout)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	cmd.Flags().BoolVar(&every, "all", false, "all of the group's dead letters that there are now")
	settings(cmd, "redis.url", "redis.prefix", "replay.group")
	return cmd
}

// retry redrives a letter and says so.
func (m *morgue) retry(ctx context.Context, l *letter, stdout io.Writer) error {
	stream := l.fields["stream"]
	if !strings.HasPrefix(stream, m.shard(l.at.shard).Tag()+":") {
		return fmt.Errorf("letter %s is of stream %q, which is not of shard %d: left as it is", l.at, stream, l.at.shard)
	}
	target := l.target(m.group)
	id, err := redrive.Run(ctx, m.rdb, []string{m.key(l.at.shard), stream}, l.at.id.String(), target, len(letterFields)).Text()
	if errors.Is(err, redis.Nil) {
		return m.none(l.at)
	}
	if err != nil {
		return fmt.Errorf("letter %s: %w", l.at, err)
	}
	_, err = fmt.Fprintln(stdout, printable(fmt.Sprintf("%s is entry %s of %s, for %s", l.at, id, stream, target)))
	return err
}

// retryAll redrives the letters there are. What fails again meanwhile is left.
func (m *morgue) retryAll(ctx context.Context, stdout io.Writer) error {
	n := 0
	for shard := range m.topology.Shards {
		last, err := m.rdb.XRevRangeN(ctx, m.key(shard), "+", "-", 1).Result()
		if err != nil {
			return fmt.Errorf("read %s: %w", m.key(shard), err)
		}
		if len(last) == 0 {
			continue
		}
		for from := "-"; ; {
			page, err := m.rdb.XRangeN(ctx, m.key(shard), from, last[0].ID, pageEntries).Result()
			if err != nil {
				return fmt.Errorf("read %s: %w", m.key(shard), err)
			}
			if len(page) == 0 {
				break
			}
			for _, message := range page {
				if err := m.retry(ctx, m.open(shard, message), stdout); err != nil {
					return err
				}
				n++
			}
			from = "(" + page[len(page)-1].ID
		}
	}
	_, err := fmt.Fprintf(stdout, "%d letters of group %s go to their listeners again\n", n, m.group)
	return err
}
