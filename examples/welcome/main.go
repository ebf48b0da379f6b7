// Welcome greets a member who joins, and a guild that the bot is added to: once,
// and not each time Discord lists the guilds that the bot is in anyway (Sync). A
// greeting that fails is tried again, but not an hour later.
//
//	go run ./examples/welcome
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

// A greeter knows the guilds' names from what the gateway has cached.
type greeter struct{ cache *cache.Reader }

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		g := greeter{env.Cache}
		timely := listener.Options{Timeout: 5 * time.Second, MaxAge: time.Hour}
		env.Add(
			listener.GuildCreate.Handle("welcome-guild", g.guild).With(timely),
			listener.GuildMemberAdd.Handle("welcome-member", g.member).With(timely),
		)
		return nil
	})
}

func (g greeter) guild(_ context.Context, e *event.GuildCreate) error {
	if e.Sync || e.New.Unavailable {
		return nil
	}
	fmt.Printf("hello %s, thank you for having me\n", e.New.Name)
	return nil
}

// member would send a message with the Env's Session; here it prints it.
func (g greeter) member(ctx context.Context, e *event.GuildMemberAdd) error {
	guild, err := g.cache.Guild(ctx, e.GuildID)
	if errors.Is(err, cache.ErrNotCached) { // the bot has left it meanwhile
		return nil
	}
	if err != nil {
		return err // tried again
	}
	fmt.Printf("welcome to %s, %s\n", guild.Name, e.New.User.Username)
	return nil
}
