package replay_test

import (
	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"
)

type (
	discordgoMessage       = discordgo.Message
	discordgoMessageUpdate = discordgo.MessageUpdate
)

func xpending(stream, group string) *redis.XPendingExtArgs {
	return &redis.XPendingExtArgs{Stream: stream, Group: group, Start: "-", End: "+", Count: 100}
}
