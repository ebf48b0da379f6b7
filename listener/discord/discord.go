// Package discord has the payload types of dispatches for which discordgo has
// none, or has one under a name that Discord never sends. They are written in
// discordgo's manner: exported fields, identifiers as strings, null as the zero
// value.
//
// Source: https://discord.com/developers/docs/events/gateway-events#receive-events
package discord

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"
)

// StageInstanceCreate is the payload of STAGE_INSTANCE_CREATE. discordgo's
// StageInstanceEventCreate waits for a dispatch of another name.
type StageInstanceCreate struct {
	*discordgo.StageInstance
}

// StageInstanceUpdate is the payload of STAGE_INSTANCE_UPDATE.
type StageInstanceUpdate struct {
	*discordgo.StageInstance
}

// StageInstanceDelete is the payload of STAGE_INSTANCE_DELETE.
type StageInstanceDelete struct {
	*discordgo.StageInstance
}

// MessageReactionRemoveEmoji is the payload of MESSAGE_REACTION_REMOVE_EMOJI: all
// reactions with one emoji are gone. It has no UserID.
type MessageReactionRemoveEmoji struct {
	*discordgo.MessageReaction
}

// ChannelInfo is the payload of CHANNEL_INFO: what a request for the ephemeral
// data of a guild's channels brought.
type ChannelInfo struct {
	GuildID  string              `json:"guild_id"`
	Channels []*ChannelEphemeral `json:"channels"`
}

// A ChannelEphemeral is what a voice channel has for as long as it is in use.
type ChannelEphemeral struct {
	ID string `json:"id"`
	// The status of the voice channel; empty: none.
	Status string `json:"status"`
	// When the voice session began, in unix seconds; 0: there is none.
	VoiceStartTime int64 `json:"voice_start_time"`
}

// A VoiceChannel is a channel with what it has for as long as it is in use.
// discordgo's Channel has no place for that.
type VoiceChannel struct {
	*discordgo.Channel
	// The status of the voice channel; empty: none, or not known.
	Status string `json:"status"`
	// When the voice session began, in unix seconds; 0: there is none, or it is not
	// known.
	VoiceStartTime int64 `json:"voice_start_time"`
}

// VoiceChannelStatusUpdate is the payload of VOICE_CHANNEL_STATUS_UPDATE.
type VoiceChannelStatusUpdate struct {
	// The id of the channel.
	ID      string `json:"id"`
	GuildID string `json:"guild_id"`
	// The new status; empty: none.
	Status string `json:"status"`
}

// VoiceChannelStartTimeUpdate is the payload of VOICE_CHANNEL_START_TIME_UPDATE.
type VoiceChannelStartTimeUpdate struct {
	// The id of the channel.
	ID      string `json:"id"`
	GuildID string `json:"guild_id"`
	// When the voice session began, in unix seconds; 0: it has ended.
	VoiceStartTime int64 `json:"voice_start_time"`
}

// AnimationType is the kind of animation of a voice channel effect.
type AnimationType int

// The kinds of animations.
const (
	AnimationTypePremium AnimationType = 0
	AnimationTypeBasic   AnimationType = 1
)

// VoiceChannelEffectSend is the payload of VOICE_CHANNEL_EFFECT_SEND: somebody
// sent an emoji reaction or a soundboard sound into a voice channel.
type VoiceChannelEffectSend struct {
	ChannelID string `json:"channel_id"`
	GuildID   string `json:"guild_id"`
	UserID    string `json:"user_id"`
	// The emoji sent, nil for none.
	Emoji *discordgo.Emoji `json:"emoji"`
	// The kind of animation, nil for none.
	AnimationType *AnimationType `json:"animation_type"`
	AnimationID   int            `json:"animation_id"`
	// The soundboard sound's id, empty for none. Discord numbers its default
	// sounds, and sends those as integers.
	SoundID string `json:"sound_id"`
	// From 0 to 1.
	SoundVolume float64 `json:"sound_volume"`
}

// UnmarshalJSON takes a sound's id as string and as integer.
func (e *VoiceChannelEffectSend) UnmarshalJSON(data []byte) error {
	type plain VoiceChannelEffectSend
	v := struct {
		*plain
		SoundID json.RawMessage `json:"sound_id"`
	}{plain: (*plain)(e)}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	e.SoundID = ""
	switch {
	case len(v.SoundID) == 0 || string(v.SoundID) == "null":
		return nil
	case v.SoundID[0] == '"':
		return json.Unmarshal(v.SoundID, &e.SoundID)
	}
	id, err := strconv.ParseUint(string(v.SoundID), 10, 64)
	if err != nil {
		return fmt.Errorf("sound_id is %s, want a string or an integer", v.SoundID)
	}
	e.SoundID = strconv.FormatUint(id, 10)
	return nil
}

// A SoundboardSound is a sound of a soundboard.
// https://discord.com/developers/docs/resources/soundboard#soundboard-sound-object
type SoundboardSound struct {
	Name    string `json:"name"`
	SoundID string `json:"sound_id"`
	// From 0 to 1.
	Volume float64 `json:"volume"`
	// The id of the sound's custom emoji.
	EmojiID string `json:"emoji_id"`
	// The unicode character of the sound's standard emoji.
	EmojiName string `json:"emoji_name"`
	// The guild the sound is of; empty for a default sound.
	GuildID string `json:"guild_id"`
	// Whether it can be used; false after the loss of server boosts.
	Available bool `json:"available"`
	// Who created it; nil if the bot may not know.
	User *discordgo.User `json:"user"`
}

// GuildSoundboardSoundCreate is the payload of GUILD_SOUNDBOARD_SOUND_CREATE.
type GuildSoundboardSoundCreate struct {
	*SoundboardSound
}

// GuildSoundboardSoundUpdate is the payload of GUILD_SOUNDBOARD_SOUND_UPDATE.
type GuildSoundboardSoundUpdate struct {
	*SoundboardSound
}

// GuildSoundboardSoundDelete is the payload of GUILD_SOUNDBOARD_SOUND_DELETE.
type GuildSoundboardSoundDelete struct {
	SoundID string `json:"sound_id"`
	GuildID string `json:"guild_id"`
}

// GuildSoundboardSoundsUpdate is the payload of GUILD_SOUNDBOARD_SOUNDS_UPDATE:
// several sounds of a guild have changed.
type GuildSoundboardSoundsUpdate struct {
	SoundboardSounds []*SoundboardSound `json:"soundboard_sounds"`
	GuildID          string             `json:"guild_id"`
}

// SoundboardSounds is the payload of SOUNDBOARD_SOUNDS, the answer to a request
// for a guild's sounds: all of them.
type SoundboardSounds struct {
	SoundboardSounds []*SoundboardSound `json:"soundboard_sounds"`
	GuildID          string             `json:"guild_id"`
}

// RateLimited is the payload of RATE_LIMITED: a request to the gateway was
// refused.
type RateLimited struct {
	// The opcode of the request.
	Opcode int `json:"opcode"`
	// Seconds to wait before the request is sent again.
	RetryAfter float64 `json:"retry_after"`
	// What the request was about.
	Meta RateLimitedMeta `json:"meta"`
}

// Wait returns RetryAfter as a duration.
func (r *RateLimited) Wait() time.Duration { return time.Duration(r.RetryAfter * float64(time.Second)) }

// RateLimitedMeta names a refused request for guild members (opcode 8).
type RateLimitedMeta struct {
	GuildID string `json:"guild_id"`
	Nonce   string `json:"nonce"`
}
