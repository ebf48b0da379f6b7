package listenertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/listenertest"
)

// failing fails with each of errs in turn, and then succeeds.
func failing(errs ...error) listener.Listener {
	runs := 0
	return listener.Handle("l", "role.>", func(_ context.Context, d *listener.Delivery) error {
		runs++
		if d.Attempt != runs || d.Listener != "l" {
			return listener.Discard(fmt.Errorf("run %d has attempt %d of listener %q", runs, d.Attempt, d.Listener))
		}
		if runs > len(errs) {
			return nil
		}
		return errs[runs-1]
	})
}

func TestRunOne(t *testing.T) {
	t.Parallel()
	gone := listener.Discard(errors.New("gone"))
	later := listener.RetryAfter(time.Minute, io.EOF)
	given := listenertest.Event("role.given", `{"guild_id":"5"}`, "")
	old := given
	old.Received = time.Now().Add(-time.Hour)
	tests := []struct {
		name   string
		worker listenertest.Worker
		l      listener.Listener
		d      listener.Delivery
		want   listenertest.Result
	}{
		{"success", listenertest.Worker{}, failing(), given, listenertest.Result{Outcome: "succeeded", Attempts: 1}},
		{"a second attempt", listenertest.Worker{}, failing(io.EOF), given,
			listenertest.Result{Outcome: "succeeded", Attempts: 2, Errors: []error{io.EOF}, Delays: []time.Duration{0}}},
		{"a delay", listenertest.Worker{}, failing(later), given,
			listenertest.Result{Outcome: "succeeded", Attempts: 2, Errors: []error{later}, Delays: []time.Duration{time.Minute}}},
		{"five attempts", listenertest.Worker{}, failing(io.EOF, io.EOF, io.EOF, io.EOF, io.EOF), given,
			listenertest.Result{Outcome: "exhausted", Attempts: 5, Errors: []error{io.EOF, io.EOF, io.EOF, io.EOF, io.EOF}, Delays: make([]time.Duration, 5)}},
		{"attempts of the worker's", listenertest.Worker{MaxAttempts: 1}, failing(io.EOF), given,
			listenertest.Result{Outcome: "exhausted", Attempts: 1, Errors: []error{io.EOF}, Delays: []time.Duration{0}}},
		{"attempts of its own", listenertest.Worker{MaxAttempts: 9}, failing(io.EOF, io.EOF, io.EOF).With(listener.Options{MaxAttempts: 2}), given,
			listenertest.Result{Outcome: "exhausted", Attempts: 2, Errors: []error{io.EOF, io.EOF}, Delays: make([]time.Duration, 2)}},
		{"a discard", listenertest.Worker{}, failing(io.EOF, gone), given,
			listenertest.Result{Outcome: "discarded", Attempts: 2, Errors: []error{io.EOF, gone}, Delays: make([]time.Duration, 2)}},
		{"an old event", listenertest.Worker{}, failing().With(listener.Options{MaxAge: time.Minute}), old, listenertest.Result{Outcome: "expired"}},
		{"an old event of no age", listenertest.Worker{}, failing(), old, listenertest.Result{Outcome: "succeeded", Attempts: 1}},
		{"another event", listenertest.Worker{}, failing(), listenertest.Event("orders.created", `7`, ""), listenertest.Result{Outcome: "unmatched"}},
	}
	for _, test := range tests {
		got := test.worker.RunOne(t.Context(), test.l, test.d)
		test.want.Listener = "l"
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		last := error(nil)
		if n := len(got.Errors); n > 0 && got.Outcome != listenertest.Succeeded {
			last = got.Errors[n-1]
		}
		if got.Err() != last {
			t.Errorf("%s: Err() = %v, want %v", test.name, got.Err(), last)
		}
		if text := got.String(); !strings.Contains(text, string(test.want.Outcome)) || (last != nil && !strings.Contains(text, last.Error())) {
			t.Errorf("%s: String() = %q", test.name, text)
		}
	}
}

func TestRunTakesThePathOfAWorker(t *testing.T) {
	t.Parallel()
	r := listener.New()
	var trace []string
	r.Use(func(next listener.Func) listener.Func {
		return func(ctx context.Context, d *listener.Delivery) error {
			trace = append(trace, fmt.Sprint(d.Listener, " ", d.Attempt, "/", d.MaxAttempts))
			return next(ctx, d)
		}
	})
	var first *discordgo.GuildRoleUpdate
	r.Add(
		listener.GuildRoleUpdate.Handle("typed", func(_ context.Context, e *listener.Event[*discordgo.GuildRoleUpdate, *discordgo.Role]) error {
			if e.Old == nil || e.Old.Name != "old" || e.New.Role.Name != "new" || e.GuildID != "5" {
				t.Errorf("called with %+v", e)
			}
			if first == nil {
				first = e.New
				panic("boom")
			}
			if e.New != first {
				t.Error("decoded again")
			}
			return nil
		}),
		listener.Handle("other", "message.*", func(context.Context, *listener.Delivery) error { return io.EOF }),
	)
	r.SetSession(new(discordgo.Session))
	r.AddHandler(func(s *discordgo.Session, e *discordgo.GuildRoleUpdate) {
		if s == nil || e.Role.Name != "new" {
			t.Errorf("handler called with %v, %v", s, e)
		}
	})
	var w listenertest.Worker
	got := w.Run(t.Context(), r, listenertest.Event("GUILD_ROLE_UPDATE", `{"guild_id":"5","role":{"id":"1","name":"new"}}`, `{"id":"1","name":"old"}`))
	if len(got) != 2 || got[0].Outcome != listenertest.Succeeded || got[0].Attempts != 2 || got[1].Outcome != listenertest.Succeeded {
		t.Fatalf("results %v", got)
	}
	if _, ok := errors.AsType[*listener.PanicError](got[0].Errors[0]); !ok {
		t.Errorf("first error %v, want a PanicError", got[0].Errors[0])
	}
	if diff := cmp.Diff([]string{"typed 1/5", "typed 2/5", "handler-guild-role-update-1 1/5"}, trace); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if got := w.Run(t.Context(), r, listenertest.Event("READY", `{}`, "")); got != nil {
		t.Errorf("an event nobody listens to: %v", got)
	}
	broken := listenertest.Event("GUILD_ROLE_UPDATE", `{"role":7}`, "")
	if got := w.Run(t.Context(), r, broken)[0]; got.Outcome != listenertest.Discarded || got.Attempts != 1 {
		t.Errorf("a payload that does not decode: %v", got)
	}
}

func TestRunsTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := listener.Handle("wait", ">", func(ctx context.Context, _ *listener.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for _, test := range []struct {
			worker listenertest.Worker
			own    time.Duration
			want   time.Duration
		}{
			{listenertest.Worker{MaxAttempts: 1}, 0, 30 * time.Second},
			{listenertest.Worker{MaxAttempts: 1, Timeout: time.Minute}, 0, time.Minute},
			{listenertest.Worker{MaxAttempts: 1, Timeout: time.Minute}, time.Second, time.Second},
		} {
			begun := time.Now()
			got := test.worker.RunOne(t.Context(), wait.With(listener.Options{Timeout: test.own}), listenertest.Event("READY", `{}`, ""))
			if took := time.Since(begun); took != test.want || !errors.Is(got.Err(), context.DeadlineExceeded) {
				t.Errorf("%v after %v, want a deadline after %v", got, took, test.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := (listenertest.Worker{}).RunOne(ctx, wait, listenertest.Event("READY", `{}`, "")); got.Outcome != listenertest.Interrupted || got.Attempts != 1 {
			t.Errorf("a context that ended: %v", got)
		}
	})
}

func TestRunBatch(t *testing.T) {
	t.Parallel()
	gone := listener.Discard(errors.New("gone"))
	var batches []string
	insert := func(_ context.Context, ds []*listener.Delivery) error {
		var ids []string
		failed := listener.BatchError{}
		for i, d := range ds {
			id, _ := d.Field("id")
			ids = append(ids, fmt.Sprint(string(id), "#", d.Attempt))
			switch {
			case string(id) == "2" && d.Attempt == 1:
				failed[i] = io.EOF
			case string(id) == "3":
				failed[i] = gone
			case string(id) == "5":
				failed[i] = io.ErrNoProgress
			}
		}
		batches = append(batches, strings.Join(ids, " "))
		return failed
	}
	l := listener.HandleBatch("insert", "orders.*", listener.BatchOptions{MaxSize: 3}, insert).With(listener.Options{MaxAge: time.Hour})
	var ds []listener.Delivery
	for i := range 6 {
		ds = append(ds, listenertest.Event("orders.created", fmt.Sprintf(`{"id":%d}`, i), ""))
	}
	ds[4].Received = time.Now().Add(-2 * time.Hour)
	ds = append(ds, listenertest.Event("READY", `{}`, ""))
	got := listenertest.Worker{MaxAttempts: 2}.RunBatch(t.Context(), l, ds...)
	want := []string{
		"insert succeeded after 1 attempts",
		"insert succeeded after 1 attempts",
		"insert succeeded after 2 attempts",
		"insert discarded after 1 attempts: gone",
		"insert expired after 0 attempts",
		"insert exhausted after 2 attempts: multiple Read calls return no data or error",
		"insert unmatched after 0 attempts",
	}
	var texts []string
	for _, r := range got {
		texts = append(texts, r.String())
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0#1 1#1 2#1", "3#1 5#1 2#2", "5#2"}, batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	var w listenertest.Worker
	if got := w.RunOne(t.Context(), l, ds[0]); got.Outcome != listenertest.Succeeded {
		t.Errorf("a batch of one: %v", got)
	}
	if got := w.RunBatch(t.Context(), l); len(got) != 0 {
		t.Errorf("a batch of none: %v", got)
	}
	defer func() {
		if value := recover(); !strings.Contains(fmt.Sprint(value), `"l" takes no batches`) {
			t.Errorf("RunBatch of another listener panics with %v", value)
		}
	}()
	w.RunBatch(t.Context(), failing(), ds...)
}

func TestEvent(t *testing.T) {
	t.Parallel()
	tests := []struct{ eventType, payload, previous, id, guild, session string }{
		{"MESSAGE_UPDATE", `{"id":"1","guild_id":"5"}`, `{"id":"1"}`, "0/0/1-0", "5", "test"},
		{"GUILD_CREATE", `{"id":"5"}`, "", "0/0/1-0", "5", "test"},
		{"MESSAGE_CREATE", `{"id":"1","channel_id":"5"}`, "", "0/0/1-0", "", "test"},
		{"INTERACTION_CREATE", `{"id":"1","guild_id":"5"}`, "", "0/x0/1-0", "5", "test"},
		{"LANTERN_LIT", `{"guild_id":"5"}`, "", "0/0/1-0", "5", "test"},
		{"orders.created", `"soup"`, "", "0/0/1-0", "", ""},
	}
	for _, test := range tests {
		d := listenertest.Event(test.eventType, test.payload, test.previous)
		if d.Type != test.eventType || string(d.Payload) != test.payload || string(d.Previous) != test.previous ||
			d.ID != test.id || d.GuildID != test.guild || d.Session != test.session || (d.Sequence == 1) != (test.session != "") {
			t.Errorf("Event(%q) = %+v", test.eventType, d)
		}
		if age := time.Since(d.Received); age < 0 || age > time.Minute {
			t.Errorf("received %v ago", age)
		}
	}
	for _, bad := range [][3]string{
		{"", `{}`, ""}, {"a..b", `{}`, ""}, {"orders.*", `{}`, ""}, {"READY", ``, ""}, {"READY", `{"a":}`, ""}, {"READY", `{}`, `{`},
	} {
		func() {
			defer func() {
				if value := recover(); !strings.HasPrefix(fmt.Sprint(value), "listenertest: Event: ") {
					t.Errorf("Event(%q) panics with %v", bad, value)
				}
			}()
			listenertest.Event(bad[0], bad[1], bad[2])
		}()
	}
}
