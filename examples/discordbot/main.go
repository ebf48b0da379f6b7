// Discordbot is a bot of ten discordgo handlers that became a worker by its main
// alone: handlers.go is as it was. This is what main was before:
//
//	s, err := discordgo.New("Bot " + os.Getenv("DISCORD_TOKEN"))
//	// …
//	for _, h := range handlers {
//		s.AddHandler(h)
//	}
//	if err := s.Open(); err != nil {
//		log.Fatal(err)
//	}
//	defer s.Close()
//	<-interrupted
//
// It needs the bot's token for the session that its handlers are called with:
//
//	DISCORD_TOKEN=… go run ./examples/discordbot
package main

import (
	"context"

	"github.com/sluicehq/sluice"
)

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		for _, h := range handlers {
			env.AddHandler(h)
		}
		return nil
	})
}
