package cache

import (
	"context"
	"iter"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// Member returns a member of a guild.
func (r *Reader) Member(ctx context.Context, guildID, userID string) (*discordgo.Member, error) {
	b := r.Batch()
	return read(ctx, b, b.Member(guildID, userID))
}

// Members yields members of a guild.
func (r *Reader) Members(ctx context.Context, guildID string, userIDs ...string) iter.Seq2[*discordgo.Member, error] {
	return pages(ctx, r, members, r.place(dispatch.Member, guildID), userIDs)
}

// MemberRoles returns the roles of a member, the highest first, without
// @everyone, which all have.
func (r *Reader) MemberRoles(ctx context.Context, guildID, userID string) ([]*discordgo.Role, error) {
	b := r.Batch()
	return read(ctx, b, b.MemberRoles(guildID, userID))
}

// Presence returns the presence of a member.
func (r *Reader) Presence(ctx context.Context, guildID, userID string) (*discordgo.Presence, error) {
	b := r.Batch()
	return read(ctx, b, b.Presence(guildID, userID))
}

// Presences yields presences of a guild's members.
func (r *Reader) Presences(ctx context.Context, guildID string, userIDs ...string) iter.Seq2[*discordgo.Presence, error] {
	return pages(ctx, r, presences, r.place(dispatch.Presence, guildID), userIDs)
}

// VoiceState returns the voice state of a member who is in a voice channel.
func (r *Reader) VoiceState(ctx context.Context, guildID, userID string) (*discordgo.VoiceState, error) {
	b := r.Batch()
	return read(ctx, b, b.VoiceState(guildID, userID))
}

// VoiceStates yields voice states of a guild's members.
func (r *Reader) VoiceStates(ctx context.Context, guildID string, userIDs ...string) iter.Seq2[*discordgo.VoiceState, error] {
	return pages(ctx, r, voiceStates, r.place(dispatch.VoiceState, guildID), userIDs)
}

// ChannelVoiceStates yields the voice states of those who are in a voice channel.
// It reads those of the whole guild.
func (r *Reader) ChannelVoiceStates(ctx context.Context, guildID, channelID string) iter.Seq2[*discordgo.VoiceState, error] {
	p := r.place(dispatch.VoiceState, guildID)
	return decoded(voiceStates, guildID, func(yield func(entity, error) bool) {
		for e, err := range r.all(ctx, p) {
			if err == nil && string(rawjson.ID(rawjson.Get(e.raw, "channel_id"))) != channelID {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	})
}

// ThreadMember returns a user's membership of a thread.
func (r *Reader) ThreadMember(ctx context.Context, guildID, threadID, userID string) (*discordgo.ThreadMember, error) {
	b := r.Batch()
	return read(ctx, b, b.ThreadMember(guildID, threadID, userID))
}

// ThreadMembers yields memberships of a thread, as far as dispatches told of
// them: the bot's own, and of others, with the GUILD_MEMBERS intent, those who
// were added since the bot can see the thread.
func (r *Reader) ThreadMembers(ctx context.Context, guildID, threadID string, userIDs ...string) iter.Seq2[*discordgo.ThreadMember, error] {
	s := threadMembers
	s.fill = inThread(threadID)
	return pages(ctx, r, s, r.threadMembers(guildID, threadID), userIDs)
}

// inThread gives a membership the id of its thread.
func inThread(threadID string) func(*discordgo.ThreadMember, string) {
	return func(m *discordgo.ThreadMember, _ string) { m.ID = threadID }
}

// Ban returns a user's ban from a guild.
func (r *Reader) Ban(ctx context.Context, guildID, userID string) (*discordgo.GuildBan, error) {
	b := r.Batch()
	return read(ctx, b, b.Ban(guildID, userID))
}

// Bans yields the bans of a guild that dispatches have told of: no snapshot lists
// them, and none says why.
func (r *Reader) Bans(ctx context.Context, guildID string, userIDs ...string) iter.Seq2[*discordgo.GuildBan, error] {
	return pages(ctx, r, bans, r.place(dispatch.Ban, guildID), userIDs)
}

// Self returns the bot's own user.
func (r *Reader) Self(ctx context.Context) (*discordgo.User, error) {
	b := r.Batch()
	return read(ctx, b, b.Self())
}

// Entitlement returns an entitlement of a user or a guild to one of the
// application's SKUs.
func (r *Reader) Entitlement(ctx context.Context, entitlementID string) (*discordgo.Entitlement, error) {
	b := r.Batch()
	return read(ctx, b, b.Entitlement(entitlementID))
}

// Entitlements yields entitlements that dispatches have told of, of every shard.
func (r *Reader) Entitlements(ctx context.Context, entitlementIDs ...string) iter.Seq2[*discordgo.Entitlement, error] {
	return pages(ctx, r, entitlements, r.place(dispatch.Entitlement, ""), entitlementIDs)
}

// Subscription returns a user's subscription to the application's SKUs.
func (r *Reader) Subscription(ctx context.Context, subscriptionID string) (*discordgo.Subscription, error) {
	b := r.Batch()
	return read(ctx, b, b.Subscription(subscriptionID))
}

// Subscriptions yields subscriptions that dispatches have told of, of every shard.
func (r *Reader) Subscriptions(ctx context.Context, subscriptionIDs ...string) iter.Seq2[*discordgo.Subscription, error] {
	return pages(ctx, r, subscriptions, r.place(dispatch.Subscription, ""), subscriptionIDs)
}
