// Whoami answers "!whoami" out of the cache: where that was written, with which
// roles, and what its author may do there, all of it read in one round trip.
//
//	go run ./examples/whoami
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

type answers struct{ cache *cache.Reader }

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		env.Add(listener.MessageCreate.Handle("whoami", answers{env.Cache}.message))
		return nil
	})
}

func (a answers) message(ctx context.Context, e *event.MessageCreate) error {
	if e.New.Content != "!whoami" || e.GuildID == "" {
		return nil
	}
	b := a.cache.Batch()
	guild := b.Guild(e.GuildID)
	channel := b.Channel(e.GuildID, e.New.ChannelID)
	roles := b.MemberRoles(e.GuildID, e.New.Author.ID)
	permissions := b.Permissions(e.GuildID, e.New.ChannelID, e.New.Author.ID)
	if err := b.Read(ctx); err != nil {
		return err // tried again
	}
	g, err1 := guild.Get()
	c, err2 := channel.Get()
	rs, err3 := roles.Get()
	p, err4 := permissions.Get()
	if err := errors.Join(err1, err2, err3, err4); err != nil { // one of them is not cached
		return listener.Discard(err)
	}
	fmt.Printf("%s in #%s of %s", e.New.Author.Username, c.Name, g.Name)
	for _, role := range rs {
		fmt.Printf(", %s", role.Name)
	}
	if p&discordgo.PermissionManageMessages != 0 {
		fmt.Print(", who may delete this")
	}
	fmt.Println()
	return nil
}
