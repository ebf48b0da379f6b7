package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// A shown is an entry as it is shown: with payload and state in JSON.
type shown struct {
	stream *stream
	id     entryID
	entry  wire.Entry
	values map[string]any // the fields, if err
	err    error          // why they are no entry, or can't be shown as JSON
}

func newShown(s *stream, m redis.XMessage) *shown {
	e := &shown{stream: s}
	e.id, _ = parseID(m.ID) // Redis writes no other
	e.entry, e.err = wire.Decode(m.Values)
	if e.err == nil && e.entry.Codec == wire.Msgpack {
		for _, field := range []*[]byte{&e.entry.Payload, &e.entry.State} {
			text, err := wire.ToJSON(nil, *field)
			if err != nil {
				e.err = err
				break
			}
			*field = text
		}
	}
	if e.err != nil {
		e.values = m.Values
	}
	return e
}

// compare orders by id, then by stream, so that the order is always the same.
func (e *shown) compare(other *shown) int {
	if c := e.id.compare(other.id); c != 0 {
		return c
	}
	return strings.Compare(e.stream.key, other.stream.key)
}

// name is the entry's id in the deployment.
func (e *shown) name() string {
	x := ""
	if e.stream.express {
		x = "x"
	}
	return strconv.Itoa(e.stream.shard) + "/" + x + strconv.Itoa(e.stream.lane) + "/" + e.id.String()
}

// guild is the id of the guild the entry is ordered by, empty if by none.
func (e *shown) guild() string {
	var f dispatch.Fields
	if e.err != nil || f.Scan(e.entry.Payload) != nil {
		return ""
	}
	_, guild := dispatch.Lookup(e.entry.Event).Key(&f)
	return string(guild)
}

// Runes that a line of text shows of payload and state.
const (
	cutPayload = 300
	cutState   = 200
)

// textWriter returns what writes an entry as a line of text.
func textWriter(full bool) func(io.Writer, *shown) error {
	cut := func(text string, runes int) string {
		if full || utf8.RuneCountInString(text) <= runes {
			return text
		}
		for i := range text {
			if runes == 0 {
				return text[:i] + "…"
			}
			runes--
		}
		return text
	}
	return func(w io.Writer, e *shown) error {
		var b strings.Builder
		if e.err != nil {
			fmt.Fprintf(&b, "%s %s no entry that can be shown: %v: %v", time.UnixMilli(int64(e.id.ms)).UTC().Format(timeFormat), e.name(), e.err, e.values)
			_, err := fmt.Fprintln(w, cut(printable(b.String()), cutPayload+cutState))
			return err
		}
		fmt.Fprintf(&b, "%s %s %s", time.UnixMilli(e.entry.Received).UTC().Format(timeFormat), e.name(), e.entry.Event)
		if e.entry.Sequence != 0 {
			fmt.Fprintf(&b, " s=%d", e.entry.Sequence)
		}
		if e.entry.Flags != 0 {
			fmt.Fprintf(&b, " [%s]", e.entry.Flags)
		}
		e.writeIDs(&b)
		if e.entry.Target != "" {
			fmt.Fprintf(&b, " target=%s", e.entry.Target)
		}
		b.WriteString(" " + cut(oneLine(e.entry.Payload), cutPayload))
		if len(e.entry.State) > 0 {
			b.WriteString(" < " + cut(oneLine(e.entry.State), cutState))
		}
		_, err := fmt.Fprintln(w, printable(b.String()))
		return err
	}
}

// writeIDs writes the identifiers that the payload has.
func (e *shown) writeIDs(b *strings.Builder) {
	var f dispatch.Fields
	if f.Scan(e.entry.Payload) != nil {
		return
	}
	_, guild := dispatch.Lookup(e.entry.Event).Key(&f)
	user := f.ID(dispatch.UserID)
	if user == nil {
		user = f.ID(dispatch.UserObject)
	}
	for _, id := range []struct {
		name string
		id   []byte
	}{{"guild", guild}, {"channel", f.ID(dispatch.ChannelID)}, {"user", user}, {"id", f.ID(dispatch.ID)}} {
		if id.id != nil {
			fmt.Fprintf(b, " %s=%s", id.name, id.id)
		}
	}
}

const timeFormat = "2006-01-02T15:04:05.000Z"

func oneLine(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// printable escapes what would move a terminal's cursor or turn its text around.
func printable(text string) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case hidden(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// hidden reports whether a rune is not shown as itself. The joiner within emoji
// is.
func hidden(r rune) bool { return !unicode.IsPrint(r) && r != '\u200d' }

// A line is an entry as --output json has it.
type line struct {
	ID       string          `json:"id"`
	Stream   string          `json:"stream"`
	Error    string          `json:"error,omitempty"`
	Fields   map[string]any  `json:"fields,omitempty"` // with Error: as Redis has them
	Event    string          `json:"event,omitempty"`
	Shard    int             `json:"shard"`
	Lane     int             `json:"lane"`
	Express  bool            `json:"express"`
	Sequence int64           `json:"sequence"`
	Session  string          `json:"session"`
	Received int64           `json:"received"`
	Codec    string          `json:"codec"`
	Flags    []string        `json:"flags"`
	Trace    string          `json:"trace,omitempty"`
	Target   string          `json:"target,omitempty"`
	Payload  json.RawMessage `json:"payload"`
	State    json.RawMessage `json:"state"` // null: not known
}

// writeJSON writes an entry as a JSON object on a line.
func writeJSON(w io.Writer, e *shown) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(newLine(e))
}

func newLine(e *shown) line {
	l := line{
		ID: e.name(), Stream: e.stream.key, Shard: e.stream.shard, Lane: e.stream.lane, Express: e.stream.express, Flags: []string{},
	}
	if err := e.err; err != nil {
		l.Error, l.Fields = err.Error(), e.values
	} else {
		l.Event, l.Sequence, l.Session, l.Received = e.entry.Event, e.entry.Sequence, e.entry.Session, e.entry.Received
		l.Codec, l.Trace, l.Target = e.entry.Codec, e.entry.Trace, e.entry.Target
		if text := e.entry.Flags.String(); text != "" {
			l.Flags = strings.Split(text, ",")
		}
		l.Payload, l.State = raw(e.entry.Payload), raw(e.entry.State)
	}
	return l
}

// raw is text as part of a JSON object: as a string, if it is no JSON.
func raw(text []byte) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	if json.Valid(text) {
		return text
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return nil // a string is always representable
	}
	return quoted
}
