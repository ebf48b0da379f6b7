package listener_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/listener"
)

func nothing(context.Context, *listener.Delivery) error { return nil }

// panics returns what f panics with, or empty.
func panics(f func()) (text string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}

func TestAddPanics(t *testing.T) {
	t.Parallel()
	good := listener.Handle("good", ">", nothing)
	const pattern listener.Kind[int, listener.None] = "orders.*"
	const empty listener.Kind[int, listener.None] = ""
	tests := []struct {
		name string
		add  []listener.Listener
		want string
	}{
		{"a zero listener", []listener.Listener{{}}, "zero Listener"},
		{"a nil function", []listener.Listener{listener.Handle("a", ">", nil)}, `"a" for > has a nil function`},
		{"a nil typed function", []listener.Listener{listener.Ready.Handle("a", nil)}, `"a" for READY has a nil function`},
		{"a name twice", []listener.Listener{good, listener.Handle("good", "a.b", nothing)}, `"good" is twice, for > and for a.b`},
		{"no name", []listener.Listener{listener.Handle("", ">", nothing)}, `bad name "": it is empty`},
		{"a name with a comma", []listener.Listener{listener.Handle("a,b", ">", nothing)}, `bad name "a,b"`},
		{"a name that begins with a dash", []listener.Listener{listener.Handle("-a", ">", nothing)}, `bad name "-a"`},
		{"a long name", []listener.Listener{listener.Handle(strings.Repeat("a", 101), ">", nothing)}, "101 bytes"},
		{"an empty pattern", []listener.Listener{listener.Handle("a", "", nothing)}, "it is empty"},
		{"a bad pattern", []listener.Listener{listener.Handle("a", "a.>.b", nothing)}, "> is allowed at the end only"},
		{"a kind that is a pattern", []listener.Listener{pattern.Handle("a", func(context.Context, *listener.Event[int, listener.None]) error { return nil })}, "a kind is one event type"},
		{"an empty kind", []listener.Listener{empty.Handle("a", func(context.Context, *listener.Event[int, listener.None]) error { return nil })}, "it is empty"},
		{"a negative timeout", []listener.Listener{good.With(listener.Options{Timeout: -1})}, "negative option"},
		{"a negative age", []listener.Listener{good.With(listener.Options{MaxAge: -time.Second})}, "negative option"},
		{"negative attempts", []listener.Listener{good.With(listener.Options{MaxAttempts: -1})}, "negative option"},
		{"a batch listener with a nil function", []listener.Listener{listener.HandleBatch("a", ">", listener.BatchOptions{}, nil)}, "nil function"},
		{"a batch of a negative size", []listener.Listener{listener.HandleBatch("a", ">", listener.BatchOptions{MaxSize: -1}, nothingMuch)}, "MaxSize -1"},
		{"a batch without end", []listener.Listener{listener.HandleBatch("a", ">", listener.BatchOptions{MaxSize: 10_001}, nothingMuch)}, "want 0 to 10000"},
		{"a batch of a negative time", []listener.Listener{listener.HandleBatch("a", ">", listener.BatchOptions{MaxWait: -1}, nothingMuch)}, "MaxWait -1ns"},
		{"a batch with a bad pattern", []listener.Listener{listener.HandleBatch("a", "a..b", listener.BatchOptions{}, nothingMuch)}, "empty token"},
		{"a batch with middleware", []listener.Listener{listener.HandleBatch("a", ">", listener.BatchOptions{}, nothingMuch).With(listener.Options{
			Use: []listener.Middleware{func(f listener.Func) listener.Func { return f }},
		})}, "takes batches and has middleware"},
		{"a nil middleware", []listener.Listener{good.With(listener.Options{Use: []listener.Middleware{nil}})}, "nil Middleware"},
	}
	for _, test := range tests {
		r := listener.New()
		got := panics(func() { r.Add(test.add...) })
		if !strings.HasPrefix(got, "listener: ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: panics with %q, want something with %q", test.name, got, test.want)
		}
		if n := len(r.All()); n != 0 {
			t.Errorf("%s: %d listeners were added all the same", test.name, n)
		}
	}

	r := listener.New()
	r.Add(good)
	if got := panics(func() { r.Add(good) }); !strings.Contains(got, `"good" is twice`) {
		t.Errorf("the same listener again: panics with %q", got)
	}
	if got := panics(func() { r.Use(nil) }); !strings.Contains(got, "nil Middleware") {
		t.Errorf("Use(nil): panics with %q", got)
	}
	r.Match("READY")
	if got := panics(func() { r.Add(listener.Handle("late", ">", nothing)) }); !strings.Contains(got, "in use") {
		t.Errorf("Add to a registry in use: panics with %q", got)
	}
	if got := panics(func() { r.Use(func(f listener.Func) listener.Func { return f }) }); !strings.Contains(got, "in use") {
		t.Errorf("Use of a registry in use: panics with %q", got)
	}
	odd := listener.New()
	odd.Use(func(listener.Func) listener.Func { return nil })
	odd.Add(good)
	if got := panics(func() { odd.All() }); !strings.Contains(got, "nil Func") {
		t.Errorf("a middleware that returns nil: panics with %q", got)
	}
}

func names(bound []*listener.Bound) []string {
	var all []string
	for _, b := range bound {
		all = append(all, b.Name())
	}
	return all
}

func TestMatch(t *testing.T) {
	t.Parallel()
	r := listener.New()
	const custom listener.Kind[int, listener.None] = "guild.member.update" // not the dispatch
	r.Add(
		listener.Handle("all", ">", nothing),
		probeFor("GUILD_MEMBER_UPDATE").listen("typed", func(seen) {}),
		listener.Handle("members", "guild.member.*", nothing),
		listener.Handle("updates", "#.update", nothing),
		listener.Handle("exact", "GUILD_MEMBER_UPDATE", nothing),
		custom.Handle("custom", func(context.Context, *listener.Event[int, listener.None]) error { return nil }),
		listener.Handle("orders", "orders.>", nothing),
	)
	tests := []struct {
		eventType string
		want      []string
	}{
		{"GUILD_MEMBER_UPDATE", []string{"all", "typed", "members", "updates", "exact"}},
		{"guild.member.update", []string{"all", "members", "updates", "exact", "custom"}},
		{"GUILD_MEMBER_ADD", []string{"all", "members"}},
		{"orders.created", []string{"all", "orders"}},
		{"LANTERN_NUMBERS", []string{"all"}},
		{"", nil},
		{"a..b", nil},
		{strings.Repeat("a", 1000), []string{"all"}},
	}
	for range 2 {
		for _, test := range tests {
			if diff := cmp.Diff(test.want, names(r.Match(test.eventType))); diff != "" {
				t.Errorf("Match(%q) (-want +got):\n%s", test.eventType, diff)
			}
		}
	}
	if diff := cmp.Diff([]string{"all", "typed", "members", "updates", "exact", "custom", "orders"}, names(r.All())); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
	if got := listener.New().Match("READY"); got != nil {
		t.Errorf("an empty registry: %v", got)
	}
}

func TestMatchRemembersABoundedNumberOfTypes(t *testing.T) {
	t.Parallel()
	r := listener.New()
	r.Add(listener.Handle("all", ">", nothing))
	for i := range 5000 {
		if n := len(r.Match(fmt.Sprintf("orders.n%d", i))); n != 1 {
			t.Fatalf("type %d: %d listeners", i, n)
		}
	}
	if n := r.Remembered(); n > 4096 {
		t.Errorf("%d types remembered", n)
	}
}

func TestMatchDoesNotAllocateAgain(t *testing.T) {
	r := listener.New()
	r.Add(listener.Handle("all", ">", nothing))
	r.Match("MESSAGE_CREATE")
	if n := testing.AllocsPerRun(100, func() { r.Match("MESSAGE_CREATE") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	var trace []string
	mw := func(name string) listener.Middleware {
		return func(next listener.Func) listener.Func {
			return func(ctx context.Context, d *listener.Delivery) error {
				trace = append(trace, name)
				return next(ctx, d)
			}
		}
	}
	r := listener.New()
	r.Use(mw("registry 1"))
	l := listener.Handle("a", ">", func(_ context.Context, d *listener.Delivery) error {
		trace = append(trace, "listener")
		return nil
	})
	l = l.With(listener.Options{Use: []listener.Middleware{mw("own 1"), mw("own 2")}})
	r.Add(l.With(listener.Options{Use: []listener.Middleware{mw("own 3")}}))
	r.Use(mw("registry 2"))
	if err := runBound(t, r.All()[0], listener.Delivery{Type: "READY"}, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"registry 1", "registry 2", "own 1", "own 2", "own 3", "listener"}
	if diff := cmp.Diff(want, trace); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	plain := listener.Handle("a", "orders.>", nothing)
	r := listener.New()
	r.Add(plain.With(listener.Options{Timeout: time.Second, MaxAttempts: 3}).
		With(listener.Options{Timeout: 2 * time.Second, MaxAge: time.Minute, Unordered: true}).
		With(listener.Options{}))
	b := r.All()[0]
	if diff := cmp.Diff(listener.Options{Timeout: 2 * time.Second, MaxAge: time.Minute, MaxAttempts: 3, Unordered: true}, b.Options()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if b.Name() != "a" || b.Pattern() != "orders.>" || !b.Matches("orders.created") || b.Matches("READY") {
		t.Errorf("name %q, pattern %q", b.Name(), b.Pattern())
	}

	// Listeners made from one another do not share their middleware.
	var used []string
	mw := func(name string) listener.Options {
		return listener.Options{Use: []listener.Middleware{func(next listener.Func) listener.Func {
			used = append(used, name)
			return next
		}}}
	}
	base := plain
	for range 5 { // with room behind the last, whatever the growth
		base = base.With(mw("base"))
		for _, name := range []string{"one", "two"} {
			used = nil
			first := base.With(mw(name))
			base.With(mw("other"))
			made := listener.New()
			made.Add(first)
			made.All()
			if used[0] != name {
				t.Errorf("the innermost middleware is %q, want %q", used[0], name)
			}
		}
	}

	other := listener.New()
	other.Add(plain)
	if o := other.All()[0].Options(); o.Timeout != 0 || o.Unordered {
		t.Errorf("With changed the listener it was called on: %+v", o)
	}
}
