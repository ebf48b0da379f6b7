package listener

import (
	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/listener/discord"
)

// fillPayload gives what a dispatch nests the guild it belongs to, and synced
// threads the bot's membership, as discordgo does before it calls handlers:
// Discord says it once.
func fillPayload(payload any, guildID string) {
	switch p := payload.(type) {
	case *discordgo.Ready:
		for _, g := range p.Guilds {
			fillGuild(g)
		}
	case *discordgo.GuildCreate:
		fillGuild(p.Guild)
	case *discordgo.GuildUpdate:
		fillGuild(p.Guild)
	case *discordgo.GuildMembersChunk:
		for _, m := range p.Members {
			fillMember(m, p.GuildID)
		}
	case *discordgo.ThreadListSync:
		for _, c := range p.Threads {
			fillChannel(c, p.GuildID)
			for _, m := range p.Members {
				if c != nil && m != nil && m.ID == c.ID {
					c.Member = m
				}
			}
		}
	}
}

func fillGuild(g *discordgo.Guild) {
	if g == nil {
		return
	}
	for _, c := range g.Channels {
		fillChannel(c, g.ID)
	}
	for _, c := range g.Threads {
		fillChannel(c, g.ID)
	}
	for _, m := range g.Members {
		fillMember(m, g.ID)
	}
	for _, s := range g.VoiceStates {
		if s != nil {
			s.GuildID = g.ID
		}
	}
}

func fillChannel(c *discordgo.Channel, guildID string) {
	if c != nil {
		c.GuildID = guildID
	}
}

func fillMember(m *discordgo.Member, guildID string) {
	if m != nil {
		m.GuildID = guildID
	}
}

// fillPrevious gives a previous state the event's guild if it has none: an entity
// that was cached out of a GUILD_CREATE does not name it.
func fillPrevious(previous any, guildID string) {
	var id *string
	switch p := previous.(type) {
	case *discordgo.AutoModerationRule:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.Channel:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.GuildScheduledEvent:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.Member:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.Message:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.StageInstance:
		if p != nil {
			id = &p.GuildID
		}
	case *discordgo.VoiceState:
		if p != nil {
			id = &p.GuildID
		}
	case *discord.VoiceChannel:
		if p != nil && p.Channel != nil {
			id = &p.GuildID
		}
	case *discord.SoundboardSound:
		if p != nil {
			id = &p.GuildID
		}
	case []*discordgo.Channel:
		for _, c := range p {
			fillPrevious(c, guildID)
		}
	case []*discordgo.Message:
		for _, m := range p {
			fillPrevious(m, guildID)
		}
	case []*discordgo.Sticker:
		for _, s := range p {
			if s != nil && s.GuildID == "" {
				s.GuildID = guildID
			}
		}
	}
	if id != nil && *id == "" {
		*id = guildID
	}
}

// linkPrevious sets the fields that discordgo's own events have for a previous
// state.
func linkPrevious(payload, previous any) {
	switch old := previous.(type) {
	case *discordgo.Channel:
		switch p := payload.(type) {
		case *discordgo.ChannelUpdate:
			p.BeforeUpdate = old
		case *discordgo.ThreadUpdate:
			p.BeforeUpdate = old
		}
	case *discordgo.Guild:
		if p, ok := payload.(*discordgo.GuildDelete); ok {
			p.BeforeDelete = old
		}
	case *discordgo.Member:
		if p, ok := payload.(*discordgo.GuildMemberUpdate); ok {
			p.BeforeUpdate = old
		}
	case *discordgo.Message:
		switch p := payload.(type) {
		case *discordgo.MessageUpdate:
			p.BeforeUpdate = old
		case *discordgo.MessageDelete:
			p.BeforeDelete = old
		}
	case *discordgo.VoiceState:
		if p, ok := payload.(*discordgo.VoiceStateUpdate); ok {
			p.BeforeUpdate = old
		}
	}
}

// takeOver gives a discordgo handler's payload what the update does not carry and
// discordgo's State takes from what it had.
func takeOver(payload, previous any) {
	switch old := previous.(type) {
	case *discordgo.Channel:
		if old == nil {
			return
		}
		var c *discordgo.Channel
		switch p := payload.(type) {
		case *discordgo.ChannelUpdate:
			c = p.Channel
		case *discordgo.ThreadUpdate:
			c = p.Channel
		}
		if c == nil {
			return
		}
		if c.PermissionOverwrites == nil {
			c.PermissionOverwrites = old.PermissionOverwrites
		}
		if c.ThreadMetadata == nil {
			c.ThreadMetadata = old.ThreadMetadata
		}
	case *discordgo.Guild:
		if p, ok := payload.(*discordgo.GuildUpdate); ok && old != nil && p.MemberCount == 0 {
			p.MemberCount = old.MemberCount
		}
	case *discordgo.Member:
		if p, ok := payload.(*discordgo.GuildMemberUpdate); ok && old != nil && p.JoinedAt.IsZero() {
			p.JoinedAt = old.JoinedAt
		}
	}
}
