package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

// deliver stands for a worker: it runs the listeners of r for one event.
func deliver(r *listener.Registry, d listener.Delivery) {
	var shared listener.Decoded
	for _, b := range r.Match(d.Type) {
		run := d
		run.Listener = b.Name()
		b.Run(context.Background(), &run, &shared, func(err error) {
			if err != nil {
				fmt.Printf("%s failed: %v\n", b.Name(), err)
			}
		})
	}
}

func ExampleKind_Handle() {
	r := listener.New()
	r.Add(listener.MessageUpdate.Handle("edit-log", func(_ context.Context, e *event.MessageUpdate) error {
		if e.Old == nil { // not known before this dispatch
			return nil
		}
		fmt.Printf("%q became %q\n", e.Old.Content, e.New.Content)
		return nil
	}))
	deliver(r, listener.Delivery{
		Type:     "MESSAGE_UPDATE",
		Payload:  json.RawMessage(`{"id":"1","content":"Hello, world"}`),
		Previous: json.RawMessage(`{"id":"1","content":"Helo, wrold"}`),
	})
	// Output: "Helo, wrold" became "Hello, world"
}

func ExampleRegistry_Add() {
	r := listener.New()
	r.Add(
		listener.GuildMemberAdd.Handle("welcome", func(_ context.Context, e *event.GuildMemberAdd) error {
			fmt.Println("welcome", e.New.User.Username)
			return nil
		}),
		listener.Handle("count", "guild.member.*", func(_ context.Context, d *listener.Delivery) error {
			fmt.Println("one more", d.Type)
			return nil
		}),
	)
	deliver(r, listener.Delivery{Type: "GUILD_MEMBER_ADD", Payload: json.RawMessage(`{"user":{"username":"mira"}}`)})
	// Output:
	// welcome mira
	// one more GUILD_MEMBER_ADD
}

func ExampleKind_custom() {
	type Order struct{ Item string }
	const OrderCreated listener.Kind[Order, listener.None] = "orders.created"

	r := listener.New()
	r.Add(OrderCreated.Handle("kitchen", func(_ context.Context, e *listener.Event[Order, listener.None]) error {
		fmt.Println("cook", e.New.Item)
		return nil
	}))
	deliver(r, listener.Delivery{Type: "orders.created", Payload: json.RawMessage(`{"item":"soup"}`)})
	// Output: cook soup
}

func ExampleHandle() {
	r := listener.New()
	r.Add(listener.Handle("audit", "guild.#.delete", func(_ context.Context, d *listener.Delivery) error {
		id, _ := d.Field("role_id")
		fmt.Println(d.Type, string(id))
		return nil
	}))
	deliver(r, listener.Delivery{Type: "GUILD_ROLE_DELETE", Payload: json.RawMessage(`{"guild_id":"1","role_id":"2"}`)})
	deliver(r, listener.Delivery{Type: "GUILD_ROLE_CREATE", Payload: json.RawMessage(`{"guild_id":"1"}`)})
	// Output: GUILD_ROLE_DELETE "2"
}

func ExampleHandleBatch() {
	r := listener.New()
	options := listener.BatchOptions{MaxSize: 500, MaxWait: 2 * time.Second}
	r.Add(listener.HandleBatch("analytics", "message.*", options, func(_ context.Context, ds []*listener.Delivery) error {
		failed := listener.BatchError{}
		for i, d := range ds {
			if id, ok := d.Field("id"); !ok {
				failed[i] = listener.Discard(errors.New("a message without an id"))
			} else {
				fmt.Println(d.Type, string(id))
			}
		}
		return failed // the others have succeeded
	}))
	events := []*listener.Delivery{
		{Type: "MESSAGE_CREATE", Payload: json.RawMessage(`{"id":"1"}`)},
		{Type: "MESSAGE_DELETE", Payload: json.RawMessage(`{"id":"1"}`)},
		{Type: "MESSAGE_CREATE", Payload: json.RawMessage(`{}`)},
	}
	r.Match("MESSAGE_CREATE")[0].RunBatch(context.Background(), events, func(err error) { fmt.Println(err) }) // as a worker does
	// Output:
	// MESSAGE_CREATE "1"
	// MESSAGE_DELETE "1"
	// event 2: a message without an id
}

func ExampleRegistry_AddHandler() {
	// A handler as it is in a bot that is built on discordgo.
	onEdit := func(s *discordgo.Session, m *discordgo.MessageUpdate) {
		if m.BeforeUpdate == nil || m.Author.ID == s.State.User.ID {
			return
		}
		fmt.Printf("%s: %q was %q\n", m.Author.Username, m.Content, m.BeforeUpdate.Content)
	}
	session, _ := discordgo.New("Bot token")
	session.State.User = &discordgo.User{ID: "9"} // sluice.Worker does this

	r := listener.New()
	r.SetSession(session) // and this
	r.AddHandler(onEdit)
	deliver(r, listener.Delivery{
		Type:     "MESSAGE_UPDATE",
		Payload:  json.RawMessage(`{"id":"1","content":"tea","author":{"id":"2","username":"mira"}}`),
		Previous: json.RawMessage(`{"id":"1","content":"coffee"}`),
	})
	// Output: mira: "tea" was "coffee"
}

func ExampleRegistry_Use() {
	named := func(name string) listener.Middleware {
		return func(next listener.Func) listener.Func {
			return func(ctx context.Context, d *listener.Delivery) error {
				fmt.Println(name)
				return next(ctx, d)
			}
		}
	}
	r := listener.New()
	r.Add(listener.Handle("audit", ">", func(context.Context, *listener.Delivery) error {
		fmt.Println("the listener")
		return nil
	}).With(listener.Options{Use: []listener.Middleware{named("its own")}}))
	r.Use(named("the registry's first"), named("the registry's second"))
	deliver(r, listener.Delivery{Type: "READY"})
	// Output:
	// the registry's first
	// the registry's second
	// its own
	// the listener
}

func ExampleListener_With() {
	timed := func(next listener.Func) listener.Func {
		return func(ctx context.Context, d *listener.Delivery) error {
			fmt.Println("begin", d.Listener)
			defer fmt.Println("end", d.Listener)
			return next(ctx, d)
		}
	}
	welcome := listener.GuildMemberAdd.Handle("welcome", func(_ context.Context, e *event.GuildMemberAdd) error {
		fmt.Println("welcome", e.New.User.Username)
		return nil
	})
	r := listener.New()
	r.Add(welcome.With(listener.Options{Timeout: 5 * time.Second, Use: []listener.Middleware{timed}}))
	deliver(r, listener.Delivery{Type: "GUILD_MEMBER_ADD", Payload: json.RawMessage(`{"user":{"username":"mira"}}`)})
	// Output:
	// begin welcome
	// welcome mira
	// end welcome
}

func ExampleEvent_Merged() {
	r := listener.New()
	r.Add(listener.GuildMemberUpdate.Handle("nicknames", func(_ context.Context, e *event.GuildMemberUpdate) error {
		member, err := e.Merged()
		if errors.Is(err, listener.ErrNotKnown) { // not cached before, and only a part was sent
			return nil
		} else if err != nil {
			return err
		}
		fmt.Println(e.Old.Nick, "is", member.Nick, "now, and joined in", member.JoinedAt.Year())
		return nil
	}))
	deliver(r, listener.Delivery{
		Type:     "GUILD_MEMBER_UPDATE",
		Payload:  json.RawMessage(`{"user":{"id":"2"},"nick":"captain"}`),
		Previous: json.RawMessage(`{"user":{"id":"2"},"nick":"sailor","joined_at":"2021-05-28T23:30:14Z"}`),
	})
	// Output: sailor is captain now, and joined in 2021
}

func ExampleRetryAfter() {
	err := listener.RetryAfter(30*time.Second, errors.New("the database is restarting"))
	delay, _ := listener.RetryDelay(err)
	fmt.Println(err, delay)
	// Output: the database is restarting 30s
}

func ExampleDiscard() {
	err := listener.Discard(errors.New("the channel is gone"))
	fmt.Println(err, listener.Discarded(err))
	// Output: the channel is gone true
}
