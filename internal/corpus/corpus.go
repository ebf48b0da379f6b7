// Package corpus holds recorded material that tests and the demo feed through
// Sluice: one dispatch of each type, a session with the states its entities had
// before each dispatch, and the payloads of known trouble.
//
// All of it is invented. The material is stored as zstd-compressed JSON lines in
// testdata; `zstd -d` shows it, `zstd --ultra -22` packs it again.
package corpus

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:embed testdata
var files embed.FS

// An Envelope is one message of the gateway.
type Envelope struct {
	Op       int
	Sequence *int64 // nil: null or absent
	Type     string // empty: not a dispatch
	Payload  []byte // the untouched bytes of d; nil: absent
	Raw      []byte // the whole message
}

// Seq returns the envelope's sequence, 0 if it has none.
func (e *Envelope) Seq() int64 {
	if e.Sequence == nil {
		return 0
	}
	return *e.Sequence
}

// A Scenario is a named series of envelopes that has broken software before.
type Scenario struct {
	Name      string // number and title: 143-duplicate-and-odd-keys
	Envelopes []Envelope
}

// Number returns the scenario's three-digit number.
func (s *Scenario) Number() string {
	number, _, _ := strings.Cut(s.Name, "-")
	return number
}

// Dispatches returns one rich dispatch of each of the 79 types, by name.
func Dispatches() []Envelope {
	var all []Envelope
	lines("dispatches", func(line []byte) { all = append(all, parse(line)) })
	return all
}

// Dispatch returns the dispatch of one type. It panics if there is none.
func Dispatch(eventType string) Envelope {
	for _, e := range Dispatches() {
		if e.Type == eventType {
			return e
		}
	}
	panic(fmt.Sprintf("corpus: no dispatch of type %q", eventType))
}

// Scenarios returns the payloads of known trouble, by number.
func Scenarios() []Scenario {
	var all []Scenario
	lines("scenarios", func(line []byte) {
		var of struct {
			Scenario string
			Envelope json.RawMessage
		}
		if err := json.Unmarshal(line, &of); err != nil {
			panic("corpus: scenarios: " + err.Error())
		}
		if n := len(all); n == 0 || all[n-1].Name != of.Scenario {
			all = append(all, Scenario{Name: of.Scenario})
		}
		last := &all[len(all)-1]
		last.Envelopes = append(last.Envelopes, parse(of.Envelope))
	})
	return all
}

// Session returns a recorded session of one shard, one envelope a line: READY, 5
// GUILD_CREATE and 2,100 mixed dispatches. The longest line has 0.75 MB.
func Session() io.ReadCloser { return open("session") }

// Expected returns what was known before the session's dispatches, one JSON
// object a line: s and t of the dispatch, previous (the entity before it) and its
// kind. Dispatches before which nothing was known have no line.
func Expected() io.ReadCloser { return open("expected") }

// A State is what was known of an entity before one of the session's dispatches.
type State struct {
	Sequence int64           `json:"s"`
	Type     string          `json:"t"`
	Previous json.RawMessage `json:"previous"`
}

// States returns every state of the session, by sequence: those of Expected, and of
// the dispatches whose types have none there (Recorded) those that the same rules
// give for bans, integrations, invites, entitlements, subscriptions, reactions,
// thread members and voice channels.
func States() map[int64]State {
	states := make(map[int64]State)
	for _, name := range []string{"expected", "additional"} {
		lines(name, func(line []byte) {
			var s State
			if err := json.Unmarshal(line, &s); err != nil {
				panic("corpus: " + name + ": " + err.Error())
			}
			states[s.Sequence] = s
		})
	}
	return states
}

// Recorded reports whether Expected has states of a dispatch type.
func Recorded(eventType string) bool { return recorded()[eventType] }

var recorded = sync.OnceValue(func() map[string]bool {
	types := make(map[string]bool)
	lines("expected", func(line []byte) {
		var s State
		if err := json.Unmarshal(line, &s); err != nil {
			panic("corpus: expected: " + err.Error())
		}
		types[s.Type] = true
	})
	return types
})

// SessionEnvelopes returns the session's envelopes in order.
func SessionEnvelopes() []Envelope {
	r := Session()
	defer r.Close()
	all, err := Read(r)
	if err != nil {
		panic("corpus: session: " + err.Error())
	}
	return all
}

// Read reads a session: one envelope a line, of at most 4 MiB.
func Read(r io.Reader) (all []Envelope, err error) {
	err = scan(r, func(line []byte) { all = append(all, parse(line)) })
	return all, err
}

func open(name string) io.ReadCloser {
	file, err := files.Open("testdata/" + name + ".jsonl.zst")
	if err != nil {
		panic("corpus: " + err.Error())
	}
	r, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic("corpus: " + name + ": " + err.Error())
	}
	return r.IOReadCloser()
}

// lines calls f with each line of a file; the line is f's to keep.
func lines(name string, f func(line []byte)) {
	r := open(name)
	defer r.Close()
	if err := scan(r, f); err != nil {
		panic("corpus: " + name + ": " + err.Error())
	}
}

func scan(r io.Reader, f func(line []byte)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 1<<20), 4<<20)
	for scanner.Scan() {
		f(bytes.Clone(scanner.Bytes()))
	}
	return scanner.Err()
}

func parse(line []byte) Envelope {
	var e struct {
		Op int             `json:"op"`
		S  *int64          `json:"s"`
		T  string          `json:"t"`
		D  json.RawMessage `json:"d"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		panic("corpus: " + err.Error())
	}
	return Envelope{Op: e.Op, Sequence: e.S, Type: e.T, Payload: e.D, Raw: line}
}
