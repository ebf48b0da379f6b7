package cache

import (
	"encoding/json"
	"fmt"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/listener/discord"
)

// A shape is how a kind's entities come: their type, and how one is given the id
// of its guild.
type shape[T any] struct {
	kind dispatch.Kind
	fill func(v *T, guildID string)
}

var (
	autoModRules    = shape[discordgo.AutoModerationRule]{dispatch.AutoModRule, func(v *discordgo.AutoModerationRule, id string) { v.GuildID = id }}
	bans            = shape[discordgo.GuildBan]{dispatch.Ban, nil}
	channels        = shape[discordgo.Channel]{dispatch.Channel, func(v *discordgo.Channel, id string) { v.GuildID = id }}
	emojis          = shape[discordgo.Emoji]{dispatch.Emojis, nil}
	entitlements    = shape[discordgo.Entitlement]{dispatch.Entitlement, nil}
	guilds          = shape[discordgo.Guild]{dispatch.Guild, nil}
	integrations    = shape[discordgo.Integration]{dispatch.Integration, nil}
	invites         = shape[discordgo.InviteCreate]{dispatch.Invite, func(v *discordgo.InviteCreate, id string) { v.GuildID = id }}
	members         = shape[discordgo.Member]{dispatch.Member, func(v *discordgo.Member, id string) { v.GuildID = id }}
	messages        = shape[discordgo.Message]{dispatch.Message, func(v *discordgo.Message, id string) { v.GuildID = id }}
	presences       = shape[discordgo.Presence]{dispatch.Presence, nil}
	roles           = shape[discordgo.Role]{dispatch.Role, nil}
	scheduledEvents = shape[discordgo.GuildScheduledEvent]{dispatch.ScheduledEvent, func(v *discordgo.GuildScheduledEvent, id string) { v.GuildID = id }}
	sounds          = shape[discord.SoundboardSound]{dispatch.SoundboardSound, func(v *discord.SoundboardSound, id string) { v.GuildID = id }}
	stageInstances  = shape[discordgo.StageInstance]{dispatch.StageInstance, func(v *discordgo.StageInstance, id string) { v.GuildID = id }}
	stickers        = shape[discordgo.Sticker]{dispatch.Stickers, func(v *discordgo.Sticker, id string) { v.GuildID = id }}
	subscriptions   = shape[discordgo.Subscription]{dispatch.Subscription, nil}
	threadMembers   = shape[discordgo.ThreadMember]{dispatch.ThreadMember, nil}
	threads         = shape[discordgo.Channel]{dispatch.Thread, channels.fill}
	voiceChannels   = shape[discord.VoiceChannel]{dispatch.Channel, func(v *discord.VoiceChannel, id string) { v.GuildID = id }}
	users           = shape[discordgo.User]{dispatch.User, nil}
	voiceStates     = shape[discordgo.VoiceState]{dispatch.VoiceState, func(v *discordgo.VoiceState, id string) { v.GuildID = id }}
)

// one decodes an entity.
func (s shape[T]) one(guildID string) func(entity) (*T, error) {
	return func(e entity) (*T, error) {
		v := new(T)
		if err := decode(e.raw, v); err != nil {
			return nil, fmt.Errorf("cache: decode %s: %w", place{kind: s.kind}.what(e.id), err)
		}
		if s.fill != nil && guildID != "" {
			s.fill(v, guildID)
		}
		return v, nil
	}
}

// list decodes an array of entities.
func (s shape[T]) list(guildID string) func(entity) ([]*T, error) {
	return func(e entity) ([]*T, error) {
		all, decode := []*T{}, s.one(guildID)
		var a rawjson.Array
		for a.Reset(e.raw); a.Next(); {
			v, err := decode(entity{id: "of guild " + guildID, raw: a.Value})
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
}

// decode decodes into v. Of a message with a component that discordgo does not
// know the components are left out: it can't decode the rest otherwise.
func decode(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if m, is := v.(*discordgo.Message); is && err != nil {
		*m = discordgo.Message{}
		return json.Unmarshal(rawjson.AppendWithout(nil, raw, func(key, _ []byte) bool { return rawjson.KeyIs(key, "components") }), m)
	}
	return err
}
