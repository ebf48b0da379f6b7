package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/dispatch"
)

func TestPatternMatch(t *testing.T) {
	t.Parallel()
	const (
		match   = "match"
		no      = "no"
		refused = "refused"
	)
	// N: NATS style, A: AMQP style, S: trailing asterisk. Where the three disagree
	// the row says what holds here: > as in NATS, # as in AMQP, empty tokens never.
	tests := []struct{ id, pattern, subject, want string }{
		{"N1", "a.b", "a.b", match},
		{"N2", "a.b", "a.c", no},
		{"N3", "a", "a.b", no},
		{"N4", "a.b", "a", no},
		{"N5", "a.*", "a.b", match},
		{"N6", "a.*", "a", no},
		{"N7", "a.*", "a.b.c", no},
		{"N8", "*", "a", match},
		{"N9", "*", "a.b", no},
		{"N10", "*.*", "a.b", match},
		{"N11", "a.*.c", "a.b.c", match},
		{"N12", "a.*.c", "a.b.d", no},
		{"N13", "a.*.c", "a.b.c.d", no},
		{"N14", ">", "a", match},
		{"N15", ">", "a.b.c", match},
		{"N16", "a.>", "a", no},
		{"N17", "a.>", "a.b", match},
		{"N18", "a.>", "a.b.c", match},
		{"N19", "a.*.>", "a.b", no},
		{"N20", "a.*.>", "a.b.c", match},
		{"N21", "*.>", "a", no},
		{"N22", "MESSAGE_CREATE.*", "message_create.1", no},
		{"N23", "fo*", "foo", refused},
		{"N24", "a.#", "a.b", match}, // in NATS # is itself
		{"N25", "a.>.c", "a.b.c", refused},
		{"N26", "a.>.c", "b", refused},
		{"N27", "a.*", "a.", no},
		{"N28", "a.>", "a.", no},
		{"N29", "a.*.b", "a..b", no},
		{"N30", ">", "", no},
		{"N31", "a.b", "a.*", no},
		{"N32a", "a.*", "b.x.y", no},
		{"N32b", "b.>", "b.x.y", match},

		{"A1", "a.b", "a.b", match},
		{"A2", "a.b", "a.c", no},
		{"A3", "a.*", "a.b", match},
		{"A4", "a.*", "a", no},
		{"A5", "a.*", "a.b.c", no},
		{"A6", "a.#", "a", match},
		{"A7", "a.#", "a.b", match},
		{"A8", "a.#", "a.b.c", match},
		{"A9", "a.#", "b", no},
		{"A10", "#", "", no}, // in AMQP an empty topic is a topic
		{"A11", "#", "a.b.c", match},
		{"A12", "", "", refused},
		{"A13", "", "a", refused},
		{"A14", "*", "", no},
		{"A15", "*", "a.b", no},
		{"A16", "#.b", "b", match},
		{"A17", "#.b", "a.c.b", match},
		{"A18", "#.b", "a.b.c", no},
		{"A19", "a.#.b", "a.b", match},
		{"A20", "a.#.b", "a.b.b", match},
		{"A21", "a.#.b", "a.b.c", no},
		{"A22", "#.b.#", "b", match},
		{"A23", "#.b.#", "a.b.c", match},
		{"A24", "#.b.#", "a.c", no},
		{"A25", "*.#", "a", match},
		{"A26", "*.#", "", no},
		{"A27", "#.*.#", "", no},
		{"A28", "a.*.#", "a", no},
		{"A29", "a.#.*", "a.b", match},
		{"A30", "#.#", "a.b", match},
		{"A31", "#.#.#.#", "a.b", match}, // no limit: any number of # costs the same
		{"A32", "a.>", "a.b", match},     // in AMQP > is itself
		{"A33", "A.b", "a.b", no},
		{"A34", "a.*", "a.", no},
		{"A35", "a.*.b", "a..b", no},

		{"S1", "/queue/*", "/queue/a", refused},
		{"S5", "*", "anything", match},
		{"S6", "/a", "/ab", no},
		{"S7", "/q*", "/queue/a", refused},
		{"S8", "/a/*/c", "/a/x/y", refused},
		{"S10", "#w/*", "#w/1", refused},
		{"S11", "/a", "/A", no},

		{"type", "MESSAGE_UPDATE", "MESSAGE_UPDATE", match},
		{"other type", "MESSAGE_UPDATE", "MESSAGE_CREATE", no},
		{"part of a type", "MESSAGE", "MESSAGE_UPDATE", no},
		{"subject of a type", "message.update", "MESSAGE_UPDATE", match},
		{"type of a subject", "MESSAGE_UPDATE", "message.update", match},
		{"star over a type", "message.*", "MESSAGE_UPDATE", match},
		{"star over a longer type", "message.*", "MESSAGE_REACTION_ADD", no},
		{"rest over a type", "message.>", "MESSAGE_REACTION_ADD", match},
		{"hash within a type", "guild.#.create", "GUILD_SOUNDBOARD_SOUND_CREATE", match},
		{"hash before a type's end", "#.create", "GUILD_CREATE", match},
		{"one word", "ready", "READY", match},
		{"an unknown type", "lantern.>", "LANTERN_NUMBERS_2", match},
		{"everything", ">", "APPLICATION_COMMAND_PERMISSIONS_UPDATE", match},
		{"a type with an empty token", ">", "LANTERN__NUMBERS", match}, // no type, one token
		{"a lower case name with underscore", "a_b", "a_b", match},
		{"custom", "orders.*", "orders.created", match},
		{"upper case in a pattern is itself", "Message.*", "MESSAGE_UPDATE", no},
		{"two hashes go on from the last", "#.a.#.b", "a.x.b.a.b", match},
		{"and fail at the end", "#.a.#.b", "b.a.x", no},
		{"hash and rest", "a.#.>", "a", no},
		{"hash and rest, one", "a.#.>", "a.b", match},
		{"hash gives the rest its token", "#.a.>", "a.a", match},
		{"wildcard in a type", "MESSAGE_*", "MESSAGE_UPDATE", refused},
		{"two rests", "a.>.>", "a.b", refused},
		{"space", "a. b", "a. b", refused},
		{"comma", "a,b", "a", refused},
		{"dot before", ".a", "a", refused},
		{"dot behind", "a.", "a", refused},
		{"too long", strings.Repeat("a", 256), "a", refused},
		{"not UTF-8", "a\xff", "a", refused},
	}
	for _, test := range tests {
		p, err := dispatch.Compile(test.pattern)
		got := no
		switch {
		case err != nil:
			got = refused
			if !errors.Is(err, dispatch.ErrPattern) {
				t.Errorf("%s: Compile(%q): error %v does not wrap ErrPattern", test.id, test.pattern, err)
			}
		case p.Match(test.subject):
			got = match
		}
		if got != test.want {
			t.Errorf("%s: %q on %q: %s (error %v), want %s", test.id, test.pattern, test.subject, got, err, test.want)
		}
		if err == nil && p.String() != test.pattern {
			t.Errorf("%s: String() = %q, want %q", test.id, p.String(), test.pattern)
		}
	}
}

func TestCompileSaysWhy(t *testing.T) {
	t.Parallel()
	tests := []struct{ pattern, want string }{
		{"", "empty"},
		{"a..b", "empty token"},
		{"a.>.c", "at the end only"},
		{"fo*", `in "fo*"`},
		{"a b", "' ' is not allowed"},
		{"a\n", `'\n' is not allowed`},
		{strings.Repeat("a", 300), "300 bytes"},
	}
	for _, test := range tests {
		_, err := dispatch.Compile(test.pattern)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Compile(%q): error %v, want one with %q", test.pattern, err, test.want)
		}
	}
}

func TestZeroPatternMatchesNothing(t *testing.T) {
	t.Parallel()
	var p dispatch.Pattern
	if p.Match("") || p.Match("a") || p.Match("READY") {
		t.Error("the zero Pattern matches")
	}
}

func TestSubjectAndType(t *testing.T) {
	t.Parallel()
	for i := range dispatch.Types {
		name := dispatch.Types[i].Name
		subject := dispatch.Subject(name)
		if back, ok := dispatch.TypeOf(subject); !ok || back != name {
			t.Errorf("TypeOf(Subject(%q)) = %q, %v", name, back, ok)
		}
		if err := dispatch.ValidSubject(subject); err != nil {
			t.Errorf("ValidSubject(%q): %v", subject, err)
		}
		for _, pattern := range []string{name, subject} {
			p, err := dispatch.Compile(pattern)
			if err != nil {
				t.Fatalf("Compile(%q): %v", pattern, err)
			}
			for j := range dispatch.Types {
				if got := p.Match(dispatch.Types[j].Name); got != (i == j) {
					t.Errorf("%q on %q: %v", pattern, dispatch.Types[j].Name, got)
				}
			}
		}
	}
	tests := []struct{ name, subject string }{
		{"GUILD_MEMBER_UPDATE", "guild.member.update"},
		{"READY", "ready"},
		{"LANTERN_2", "lantern.2"},
		{"orders.created", "orders.created"},
		{"Orders_X", "Orders_X"},
		{"A__B", "A__B"},
		{"_A", "_A"},
		{"A_", "A_"},
		{"42", "42"},
		{"", ""},
	}
	for _, test := range tests {
		if got := dispatch.Subject(test.name); got != test.subject {
			t.Errorf("Subject(%q) = %q, want %q", test.name, got, test.subject)
		}
	}
	for _, subject := range []string{"", "orders.created", "MESSAGE_UPDATE", "Message.update", "message_update"} {
		if name, ok := dispatch.TypeOf(subject); ok {
			t.Errorf("TypeOf(%q) = %q, want none", subject, name)
		}
	}
}

func TestValidSubject(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "orders.created", "a-b_c.d/e", "größe.neu"} {
		if err := dispatch.ValidSubject(good); err != nil {
			t.Errorf("ValidSubject(%q): %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "a.", ".a", "a..b", "a.*", "a.>", "#", "a b", "a\x00", "a,b", "a\u202e", "\xff", strings.Repeat("a", 256)} {
		if err := dispatch.ValidSubject(bad); !errors.Is(err, dispatch.ErrSubject) {
			t.Errorf("ValidSubject(%q): error %v, want one that wraps ErrSubject", bad, err)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	p, err := dispatch.Compile("guild.#.update")
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		p.Match("GUILD_SCHEDULED_EVENT_UPDATE")
		p.Match("guild.scheduled.event.create")
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// reference matches by the rules themselves, without any cleverness.
func reference(pattern, subject []string) bool {
	if len(pattern) == 0 {
		return len(subject) == 0
	}
	switch pattern[0] {
	case "#":
		return reference(pattern[1:], subject) || (len(subject) > 0 && reference(pattern, subject[1:]))
	case ">":
		return len(subject) > 0
	}
	return len(subject) > 0 && (pattern[0] == "*" || pattern[0] == subject[0]) && reference(pattern[1:], subject[1:])
}

func FuzzPattern(f *testing.F) {
	f.Add("a.#.b", "a.c.b")
	f.Add("#.*.a.>", "a.b.a.c")
	f.Add("MESSAGE_UPDATE", "MESSAGE_UPDATE")
	f.Add("*", "A__B")
	f.Add("a.>.c", "a..")
	f.Fuzz(func(t *testing.T, pattern, subject string) {
		p, err := dispatch.Compile(pattern)
		if err != nil {
			return
		}
		got := p.Match(subject)
		dotted := dispatch.Subject(subject)
		if strings.Count(pattern, "#") > 4 || len(subject) > 40 {
			return // the reference would take too long
		}
		tokens := strings.Split(dotted, ".")
		want := reference(strings.Split(dispatch.Subject(pattern), "."), tokens)
		for _, token := range tokens {
			want = want && token != ""
		}
		if got != want {
			t.Errorf("%q on %q: %v, want %v", pattern, subject, got, want)
		}
	})
}

func BenchmarkPatternMatch(b *testing.B) {
	for _, pattern := range []string{"MESSAGE_UPDATE", "guild.*.update", "guild.#.update", ">"} {
		p, err := dispatch.Compile(pattern)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(pattern, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Match("GUILD_MEMBER_UPDATE")
			}
		})
	}
}
