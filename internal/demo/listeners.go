package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

// listeners are what a worker of the demo registers: some that print, and one
// that keeps account of everything.
func (d *demo) listeners(worker string) []listener.Listener {
	say := func(format string, args ...any) error {
		d.out.line(worker, fmt.Sprintf(format, args...))
		return nil
	}
	return []listener.Listener{
		listener.MessageUpdate.Handle("edits", func(ctx context.Context, e *event.MessageUpdate) error {
			if e.Old == nil || e.Old.Content == e.New.Content || e.New.Content == "" {
				return nil // not cached, or only its embeds have changed
			}
			return say("edited    #%s  %s: %s  →  %s", d.channel(ctx, e.GuildID, e.New.ChannelID), name(e.Old.Author), quote(e.Old.Content), quote(e.New.Content))
		}),
		listener.MessageDelete.Handle("deletes", func(ctx context.Context, e *event.MessageDelete) error {
			if e.Old == nil || e.Old.Content == "" {
				return nil
			}
			return say("deleted   #%s  %s: %s", d.channel(ctx, e.GuildID, e.New.ChannelID), name(e.Old.Author), quote(e.Old.Content))
		}),
		listener.GuildMemberUpdate.Handle("roles", func(ctx context.Context, e *event.GuildMemberUpdate) error {
			if e.Old == nil {
				return nil
			}
			var changes []string
			for _, id := range e.New.Roles {
				if !slices.Contains(e.Old.Roles, id) {
					changes = append(changes, "+"+d.role(ctx, e.GuildID, id))
				}
			}
			for _, id := range e.Old.Roles {
				if !slices.Contains(e.New.Roles, id) {
					changes = append(changes, "-"+d.role(ctx, e.GuildID, id))
				}
			}
			if len(changes) == 0 {
				return nil
			}
			return say("roles     %s  %s", name(e.New.User), strings.Join(changes, ", "))
		}),
		listener.VoiceStateUpdate.Handle("voice", func(ctx context.Context, e *event.VoiceStateUpdate) error {
			if e.Old == nil || e.New.ChannelID == "" || e.Old.ChannelID == e.New.ChannelID {
				return nil
			}
			who := e.New.UserID
			if m, err := d.reader.Member(ctx, e.GuildID, who); err == nil {
				who = name(m.User)
			}
			return say("voice     %s  %s  →  %s", who, d.channel(ctx, e.GuildID, e.Old.ChannelID), d.channel(ctx, e.GuildID, e.New.ChannelID))
		}),
		listener.GuildDelete.Handle("guilds", func(_ context.Context, e *event.GuildDelete) error {
			if e.Old == nil || e.New.Unavailable {
				return nil
			}
			return say("left      %s", e.Old.Name)
		}),
		listener.Handle("account", "#", d.seen.take),
	}
}

// channel returns a channel's name as it is now.
func (d *demo) channel(ctx context.Context, guildID, id string) string {
	if c, err := d.reader.Channel(ctx, guildID, id); err == nil && c.Name != "" {
		return c.Name
	}
	return id
}

func (d *demo) role(ctx context.Context, guildID, id string) string {
	if r, err := d.reader.Role(ctx, guildID, id); err == nil {
		return r.Name
	}
	return id
}

func name(u *discordgo.User) string {
	if u == nil {
		return "someone"
	}
	return u.Username
}

// quote shortens a message to one line.
func quote(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 48 {
		s = string(r[:47]) + "…"
	}
	return "“" + s + "”"
}
