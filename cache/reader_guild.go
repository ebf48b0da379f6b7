package cache

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener/discord"
)

// GuildIDs returns the ids of all guilds that are known, of every shard.
func (r *Reader) GuildIDs(ctx context.Context) ([]string, error) {
	pipe := r.rdb.Pipeline()
	var keys []*redis.StringSliceCmd
	for _, shard := range r.everyShard() {
		keys = append(keys, pipe.HKeys(ctx, shard.Cache(string(dispatch.Guild))))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("cache: list the guilds: %w", err)
	}
	ids := []string{}
	for _, k := range keys {
		ids = append(ids, slices.DeleteFunc(k.Val(), isBeside)...)
	}
	return ids, nil
}

// Guilds yields guilds, of every shard.
func (r *Reader) Guilds(ctx context.Context, guildIDs ...string) iter.Seq2[*discordgo.Guild, error] {
	p := r.place(dispatch.Guild, "")
	p.shards = r.everyShard()
	return pages(ctx, r, guilds, p, guildIDs)
}

// Guild returns a guild, without its collections: they are read by themselves.
// One that is in an outage is Unavailable; all else is as it was before that.
func (r *Reader) Guild(ctx context.Context, guildID string) (*discordgo.Guild, error) {
	b := r.Batch()
	return read(ctx, b, b.Guild(guildID))
}

// Channel returns a channel or a thread of a guild.
func (r *Reader) Channel(ctx context.Context, guildID, channelID string) (*discordgo.Channel, error) {
	b := r.Batch()
	return read(ctx, b, b.Channel(guildID, channelID))
}

// VoiceChannel returns a channel with its status and since when it is in use, as
// far as dispatches have told.
func (r *Reader) VoiceChannel(ctx context.Context, guildID, channelID string) (*discord.VoiceChannel, error) {
	b := r.Batch()
	return read(ctx, b, b.VoiceChannel(guildID, channelID))
}

// Channels yields channels of a guild, without its threads.
func (r *Reader) Channels(ctx context.Context, guildID string, channelIDs ...string) iter.Seq2[*discordgo.Channel, error] {
	return pages(ctx, r, channels, r.place(dispatch.Channel, guildID), channelIDs)
}

// Threads yields threads of a guild.
func (r *Reader) Threads(ctx context.Context, guildID string, threadIDs ...string) iter.Seq2[*discordgo.Channel, error] {
	return pages(ctx, r, threads, r.place(dispatch.Thread, guildID), threadIDs)
}

// Role returns a role of a guild.
func (r *Reader) Role(ctx context.Context, guildID, roleID string) (*discordgo.Role, error) {
	b := r.Batch()
	return read(ctx, b, b.Role(guildID, roleID))
}

// Roles yields roles of a guild.
func (r *Reader) Roles(ctx context.Context, guildID string, roleIDs ...string) iter.Seq2[*discordgo.Role, error] {
	return pages(ctx, r, roles, r.place(dispatch.Role, guildID), roleIDs)
}

// Emoji returns an emoji of a guild.
func (r *Reader) Emoji(ctx context.Context, guildID, emojiID string) (*discordgo.Emoji, error) {
	b := r.Batch()
	return read(ctx, b, b.Emoji(guildID, emojiID))
}

// Emojis returns the emojis of a guild; a guild without any has an empty list.
func (r *Reader) Emojis(ctx context.Context, guildID string) ([]*discordgo.Emoji, error) {
	b := r.Batch()
	return read(ctx, b, b.Emojis(guildID))
}

// Sticker returns a sticker of a guild.
func (r *Reader) Sticker(ctx context.Context, guildID, stickerID string) (*discordgo.Sticker, error) {
	b := r.Batch()
	return read(ctx, b, b.Sticker(guildID, stickerID))
}

// Stickers returns the stickers of a guild; a guild without any has an empty list.
func (r *Reader) Stickers(ctx context.Context, guildID string) ([]*discordgo.Sticker, error) {
	b := r.Batch()
	return read(ctx, b, b.Stickers(guildID))
}

// ScheduledEvent returns a scheduled event of a guild.
func (r *Reader) ScheduledEvent(ctx context.Context, guildID, eventID string) (*discordgo.GuildScheduledEvent, error) {
	b := r.Batch()
	return read(ctx, b, b.ScheduledEvent(guildID, eventID))
}

// ScheduledEvents yields scheduled events of a guild.
func (r *Reader) ScheduledEvents(ctx context.Context, guildID string, eventIDs ...string) iter.Seq2[*discordgo.GuildScheduledEvent, error] {
	return pages(ctx, r, scheduledEvents, r.place(dispatch.ScheduledEvent, guildID), eventIDs)
}

// StageInstance returns a stage instance of a guild.
func (r *Reader) StageInstance(ctx context.Context, guildID, stageID string) (*discordgo.StageInstance, error) {
	b := r.Batch()
	return read(ctx, b, b.StageInstance(guildID, stageID))
}

// StageInstances yields stage instances of a guild.
func (r *Reader) StageInstances(ctx context.Context, guildID string, stageIDs ...string) iter.Seq2[*discordgo.StageInstance, error] {
	return pages(ctx, r, stageInstances, r.place(dispatch.StageInstance, guildID), stageIDs)
}

// SoundboardSound returns a sound of a guild's soundboard.
func (r *Reader) SoundboardSound(ctx context.Context, guildID, soundID string) (*discord.SoundboardSound, error) {
	b := r.Batch()
	return read(ctx, b, b.SoundboardSound(guildID, soundID))
}

// SoundboardSounds yields sounds of a guild's soundboard.
func (r *Reader) SoundboardSounds(ctx context.Context, guildID string, soundIDs ...string) iter.Seq2[*discord.SoundboardSound, error] {
	return pages(ctx, r, sounds, r.place(dispatch.SoundboardSound, guildID), soundIDs)
}

// AutoModRule returns an auto moderation rule of a guild.
func (r *Reader) AutoModRule(ctx context.Context, guildID, ruleID string) (*discordgo.AutoModerationRule, error) {
	b := r.Batch()
	return read(ctx, b, b.AutoModRule(guildID, ruleID))
}

// AutoModRules yields the auto moderation rules of a guild that dispatches have
// told of: no snapshot lists them.
func (r *Reader) AutoModRules(ctx context.Context, guildID string, ruleIDs ...string) iter.Seq2[*discordgo.AutoModerationRule, error] {
	return pages(ctx, r, autoModRules, r.place(dispatch.AutoModRule, guildID), ruleIDs)
}

// Invite returns an invite of a guild, by its code.
func (r *Reader) Invite(ctx context.Context, guildID, code string) (*discordgo.InviteCreate, error) {
	b := r.Batch()
	return read(ctx, b, b.Invite(guildID, code))
}

// Invites yields the invites of a guild that dispatches have told of: no snapshot
// lists them. Some of them may have expired since.
func (r *Reader) Invites(ctx context.Context, guildID string, codes ...string) iter.Seq2[*discordgo.InviteCreate, error] {
	return pages(ctx, r, invites, r.place(dispatch.Invite, guildID), codes)
}

// Integration returns an integration of a guild.
func (r *Reader) Integration(ctx context.Context, guildID, integrationID string) (*discordgo.Integration, error) {
	b := r.Batch()
	return read(ctx, b, b.Integration(guildID, integrationID))
}

// Integrations yields the integrations of a guild that dispatches have told of:
// no snapshot lists them.
func (r *Reader) Integrations(ctx context.Context, guildID string, integrationIDs ...string) iter.Seq2[*discordgo.Integration, error] {
	return pages(ctx, r, integrations, r.place(dispatch.Integration, guildID), integrationIDs)
}
