package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/listener"
)

// A printer writes one line for each event.
type printer struct {
	mu  sync.Mutex // held while writing to out
	out io.Writer
}

// show returns the listener that prints one kind.
func show[T, P any](p *printer, kind listener.Kind[T, P]) listener.Listener {
	name := "print-" + strings.ReplaceAll(strings.ToLower(string(kind)), "_", "-")
	return kind.Handle(name, func(_ context.Context, e *listener.Event[T, P]) error {
		return p.line(&e.Delivery, describe(any(e.New), any(e.Old), e.Previous))
	})
}

// notice prints what the gateway itself has to say.
func (p *printer) notice(_ context.Context, d *listener.Delivery) error {
	return p.line(d, string(d.Payload))
}

func (p *printer) line(d *listener.Delivery, what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	flags := ""
	for _, f := range [...]struct {
		set  bool
		name string
	}{{d.Sync, " sync"}, {d.Synthetic, " synthetic"}, {d.Slim, " slim"}, {d.Partial, " partial"}} {
		if f.set {
			flags += f.name
		}
	}
	guild := d.GuildID
	if guild == "" {
		guild = "-"
	}
	_, err := fmt.Fprintf(p.out, "%s %s guild=%s seq=%d attempt=%d%s %s\n", d.ID, d.Type, guild, d.Sequence, d.Attempt, flags, what)
	return err
}

// describe says what an event is about, before and after where that is known.
func describe(now, before any, previous []byte) string {
	switch e := now.(type) {
	case *discordgo.MessageCreate:
		return fmt.Sprintf("%T by %s: %q", now, author(e.Message), e.Content)
	case *discordgo.MessageUpdate:
		if old, ok := before.(*discordgo.Message); ok && old != nil {
			return fmt.Sprintf("%T by %s: before %q, after %q", now, author(old), old.Content, e.Content)
		}
		return fmt.Sprintf("%T: not known before, after %q", now, e.Content)
	case *discordgo.MessageDelete:
		if old, ok := before.(*discordgo.Message); ok && old != nil {
			return fmt.Sprintf("%T by %s: was %q", now, author(old), old.Content)
		}
	}
	switch _, none := before.(listener.None); {
	case none:
		return fmt.Sprintf("%T", now)
	case len(previous) == 0:
		return fmt.Sprintf("%T, before: not known", now)
	}
	return fmt.Sprintf("%T, before: %d bytes", now, len(previous))
}

func author(m *discordgo.Message) string {
	if m == nil || m.Author == nil {
		return "-"
	}
	return fmt.Sprintf("%q", m.Author.Username)
}
