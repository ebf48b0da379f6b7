package main

import (
	"fmt"
	"strings"

	"github.com/bwmarrin/discordgo"
)

// handlers are all there are.
var handlers = []any{
	onReady, onGuild, onMessage, onEdit, onDelete, onJoin, onLeave, onReaction, onVoice, onCommand,
}

func onReady(_ *discordgo.Session, r *discordgo.Ready) {
	fmt.Printf("ready as %s\n", r.User.Username)
}

func onGuild(_ *discordgo.Session, g *discordgo.GuildCreate) {
	fmt.Printf("guild %s with %d channels\n", g.Name, len(g.Channels))
}

func onMessage(s *discordgo.Session, m *discordgo.MessageCreate) {
	if m.Author.ID == s.State.User.ID {
		return // the bot's own
	}
	if strings.HasPrefix(m.Content, "!hello") {
		fmt.Printf("hello %s\n", m.Author.Username)
	}
}

func onEdit(_ *discordgo.Session, m *discordgo.MessageUpdate) {
	if m.BeforeUpdate != nil {
		fmt.Printf("edited %q to %q\n", m.BeforeUpdate.Content, m.Content)
	}
}

func onDelete(_ *discordgo.Session, m *discordgo.MessageDelete) {
	if m.BeforeDelete != nil {
		fmt.Printf("deleted %q\n", m.BeforeDelete.Content)
	}
}

func onJoin(_ *discordgo.Session, m *discordgo.GuildMemberAdd) {
	fmt.Printf("joined %s\n", m.User.Username)
}

func onLeave(_ *discordgo.Session, m *discordgo.GuildMemberRemove) {
	fmt.Printf("left %s\n", m.User.Username)
}

func onReaction(_ *discordgo.Session, r *discordgo.MessageReactionAdd) {
	fmt.Printf("reaction %s\n", r.Emoji.Name)
}

func onVoice(_ *discordgo.Session, v *discordgo.VoiceStateUpdate) {
	if v.BeforeUpdate != nil && v.BeforeUpdate.ChannelID != v.ChannelID {
		fmt.Printf("voice %s to %s\n", v.BeforeUpdate.ChannelID, v.ChannelID)
	}
}

func onCommand(s *discordgo.Session, i *discordgo.InteractionCreate) {
	err := s.InteractionRespond(i.Interaction, &discordgo.InteractionResponse{
		Type: discordgo.InteractionResponseChannelMessageWithSource,
		Data: &discordgo.InteractionResponseData{Content: "at your service"},
	})
	fmt.Printf("command %s answered: %v\n", i.ApplicationCommandData().Name, err == nil)
}
