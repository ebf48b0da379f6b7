package replay

import (
	"strings"
)

// The record of an entry's progress is what T:progress:<group>:<lane> has under
// its id: a line for each listener that has ended, which is its name, and for one
// that was given up a space and the error of its last run behind it. It is written
// when a listener has ended and another has failed, and when an entry is handed
// over half done; whoever gets the entry runs only the listeners that are not in
// it. It goes with the entry's ack or dead letter.
type progressLine struct {
	name   string
	failed bool
	err    string // in one line
}

// maxErrorBytes bounds an error's text in a record or a dead letter.
const maxErrorBytes = 2000

func parseProgress(text string) (lines []progressLine) {
	for line := range strings.SplitSeq(text, "\n") {
		name, err, failed := strings.Cut(line, " ")
		if name != "" {
			lines = append(lines, progressLine{name, failed, err})
		}
	}
	return lines
}

func (l progressLine) String() string {
	if l.failed {
		return l.name + " " + l.err
	}
	return l.name
}

// oneLine returns an error's text as a record has it.
func oneLine(err error) string {
	text := "no error is known"
	if err != nil {
		text = err.Error()
	}
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes] + "…"
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.TrimSpace(strings.NewReplacer("\r\n", "\\n", "\n", "\\n", "\r", "\\n").Replace(text))
}

// progress returns a line for each listener that has ended, those of former
// owners included. It is called with the desk's mutex held.
func (e *entry) progress() []progressLine {
	lines := e.before[:len(e.before):len(e.before)]
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.before {
			continue
		}
		switch t.state {
		case ended:
			lines = append(lines, progressLine{name: t.listener.name})
		case failed:
			lines = append(lines, progressLine{t.listener.name, true, oneLine(t.err)})
		}
	}
	return lines
}

// resume settles the entry's tasks that a record says have ended.
func (e *entry) resume(record string) {
	e.before = parseProgress(record)
	e.marked = true
	e.noted = len(e.before)
	for i := range e.tasks {
		t := &e.tasks[i]
		for _, line := range e.before {
			if line.name != t.listener.name {
				continue
			}
			t.before = true
			t.state = ended
			if line.failed {
				t.state = failed
			}
		}
	}
}

// worthNoting reports whether there is more to record than there is in Redis, for
// an entry that has failed somewhere.
func (e *entry) worthNoting() bool {
	ended, bad := len(e.before), e.marked
	for i := range e.tasks {
		t := &e.tasks[i]
		bad = bad || t.err != nil
		if !t.before && t.over() {
			ended++
		}
	}
	return bad && ended > e.noted
}

// over reports whether the listener has settled.
func (t *task) over() bool { return t.state == ended || t.state == failed }
