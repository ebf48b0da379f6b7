package cache

import (
	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener/discord"
)

// ask1 asks for one entity of a guild.
func ask1[T any](b *Batch, s shape[T], guildID, id string) *Item[*T] {
	return item(b, one(id, b.r.place(s.kind, guildID)), s.one(guildID))
}

// Guild asks for a guild.
func (b *Batch) Guild(guildID string) *Item[*discordgo.Guild] {
	return ask1(b, guilds, guildID, guildID)
}

// Channel asks for a channel or a thread.
func (b *Batch) Channel(guildID, channelID string) *Item[*discordgo.Channel] {
	return item(b, b.channel(guildID, channelID), channels.one(guildID))
}

func (b *Batch) channel(guildID, channelID string) query {
	return one(channelID, b.r.place(dispatch.Channel, guildID), b.r.place(dispatch.Thread, guildID))
}

// VoiceChannel asks for a channel with its status.
func (b *Batch) VoiceChannel(guildID, channelID string) *Item[*discord.VoiceChannel] {
	return item(b, b.channel(guildID, channelID), voiceChannels.one(guildID))
}

// Channels asks for all channels of a guild, ordered by id.
func (b *Batch) Channels(guildID string) *Item[[]*discordgo.Channel] {
	return item(b, every(b.r.place(dispatch.Channel, guildID)), channels.list(guildID))
}

// Role asks for a role.
func (b *Batch) Role(guildID, roleID string) *Item[*discordgo.Role] {
	return ask1(b, roles, guildID, roleID)
}

// Roles asks for all roles of a guild, ordered by id.
func (b *Batch) Roles(guildID string) *Item[[]*discordgo.Role] {
	return item(b, every(b.r.place(dispatch.Role, guildID)), roles.list(guildID))
}

// Emoji asks for an emoji.
func (b *Batch) Emoji(guildID, emojiID string) *Item[*discordgo.Emoji] {
	return item(b, within(one(guildID, b.r.place(dispatch.Emojis, guildID)), "emoji", emojiID), emojis.one(guildID))
}

// Emojis asks for the emojis of a guild.
func (b *Batch) Emojis(guildID string) *Item[[]*discordgo.Emoji] {
	return item(b, one(guildID, b.r.place(dispatch.Emojis, guildID)), emojis.list(guildID))
}

// Sticker asks for a sticker.
func (b *Batch) Sticker(guildID, stickerID string) *Item[*discordgo.Sticker] {
	return item(b, within(one(guildID, b.r.place(dispatch.Stickers, guildID)), "sticker", stickerID), stickers.one(guildID))
}

// Stickers asks for the stickers of a guild.
func (b *Batch) Stickers(guildID string) *Item[[]*discordgo.Sticker] {
	return item(b, one(guildID, b.r.place(dispatch.Stickers, guildID)), stickers.list(guildID))
}

// Member asks for a member.
func (b *Batch) Member(guildID, userID string) *Item[*discordgo.Member] {
	return ask1(b, members, guildID, userID)
}

// Members asks for those of the members with these ids that are known.
func (b *Batch) Members(guildID string, userIDs []string) *Item[[]*discordgo.Member] {
	return item(b, several(userIDs, b.r.place(dispatch.Member, guildID)), members.list(guildID))
}

// Presence asks for the presence of a member.
func (b *Batch) Presence(guildID, userID string) *Item[*discordgo.Presence] {
	return ask1(b, presences, guildID, userID)
}

// Presences asks for those of the presences of these members that are known.
func (b *Batch) Presences(guildID string, userIDs []string) *Item[[]*discordgo.Presence] {
	return item(b, several(userIDs, b.r.place(dispatch.Presence, guildID)), presences.list(guildID))
}

// VoiceState asks for the voice state of a member.
func (b *Batch) VoiceState(guildID, userID string) *Item[*discordgo.VoiceState] {
	return ask1(b, voiceStates, guildID, userID)
}

// VoiceStates asks for the voice states of those of these members who are in a
// voice channel.
func (b *Batch) VoiceStates(guildID string, userIDs []string) *Item[[]*discordgo.VoiceState] {
	return item(b, several(userIDs, b.r.place(dispatch.VoiceState, guildID)), voiceStates.list(guildID))
}

// ThreadMember asks for a user's membership of a thread.
func (b *Batch) ThreadMember(guildID, threadID, userID string) *Item[*discordgo.ThreadMember] {
	s := threadMembers
	s.fill = inThread(threadID)
	return item(b, one(userID, b.r.threadMembers(guildID, threadID)), s.one(guildID))
}

// Message asks for a message.
func (b *Batch) Message(guildID, channelID, messageID string) *Item[*discordgo.Message] {
	return item(b, one(messageID, b.r.bucket(guildID, bucket{channelID, bucketOf([]byte(messageID))})), messages.one(guildID))
}

// ScheduledEvent asks for a scheduled event.
func (b *Batch) ScheduledEvent(guildID, eventID string) *Item[*discordgo.GuildScheduledEvent] {
	return ask1(b, scheduledEvents, guildID, eventID)
}

// StageInstance asks for a stage instance.
func (b *Batch) StageInstance(guildID, stageID string) *Item[*discordgo.StageInstance] {
	return ask1(b, stageInstances, guildID, stageID)
}

// SoundboardSound asks for a sound of a soundboard.
func (b *Batch) SoundboardSound(guildID, soundID string) *Item[*discord.SoundboardSound] {
	return ask1(b, sounds, guildID, soundID)
}

// AutoModRule asks for an auto moderation rule.
func (b *Batch) AutoModRule(guildID, ruleID string) *Item[*discordgo.AutoModerationRule] {
	return ask1(b, autoModRules, guildID, ruleID)
}

// Ban asks for a user's ban.
func (b *Batch) Ban(guildID, userID string) *Item[*discordgo.GuildBan] {
	return ask1(b, bans, guildID, userID)
}

// Invite asks for an invite, by its code.
func (b *Batch) Invite(guildID, code string) *Item[*discordgo.InviteCreate] {
	return ask1(b, invites, guildID, code)
}

// Integration asks for an integration.
func (b *Batch) Integration(guildID, integrationID string) *Item[*discordgo.Integration] {
	return ask1(b, integrations, guildID, integrationID)
}

// Self asks for the bot's own user.
func (b *Batch) Self() *Item[*discordgo.User] { return ask1(b, users, "", selfID) }

// Entitlement asks for an entitlement.
func (b *Batch) Entitlement(entitlementID string) *Item[*discordgo.Entitlement] {
	return ask1(b, entitlements, "", entitlementID)
}

// Subscription asks for a subscription.
func (b *Batch) Subscription(subscriptionID string) *Item[*discordgo.Subscription] {
	return ask1(b, subscriptions, "", subscriptionID)
}
