// Bot is gateway and worker in one process: for a small bot, and for one that is
// being written. With an embedded Redis it needs nothing but Go and a token, but
// then forgets where it was when it ends. To scale, run cmd/gateway beside it and
// write Worker in the place of Bot.
//
//	DISCORD_TOKEN=… go run ./examples/bot --redis.url=embedded --discord.intents=unprivileged,MESSAGE_CONTENT
package main

import (
	"context"
	"fmt"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

func main() {
	sluice.Bot(func(_ context.Context, env *sluice.Env) error {
		env.Add(
			listener.Ready.Handle("hello", func(_ context.Context, e *event.Ready) error {
				fmt.Printf("online as %s in %d guilds\n", e.New.User.Username, len(e.New.Guilds))
				return nil
			}),
			listener.MessageCreate.Handle("ping", func(ctx context.Context, e *event.MessageCreate) error {
				if e.New.Content != "!ping" {
					return nil
				}
				_, err := env.Session.ChannelMessageSend(e.New.ChannelID, "pong", discordgo.WithContext(ctx))
				return err // tried again
			}),
		)
		return nil
	})
}
