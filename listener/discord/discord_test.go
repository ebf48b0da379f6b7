package discord_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/listener/discord"
)

// types are the package's payload types by dispatch type.
var types = map[string]any{
	"CHANNEL_INFO":                    discord.ChannelInfo{},
	"GUILD_SOUNDBOARD_SOUNDS_UPDATE":  discord.GuildSoundboardSoundsUpdate{},
	"GUILD_SOUNDBOARD_SOUND_CREATE":   discord.GuildSoundboardSoundCreate{},
	"GUILD_SOUNDBOARD_SOUND_DELETE":   discord.GuildSoundboardSoundDelete{},
	"GUILD_SOUNDBOARD_SOUND_UPDATE":   discord.GuildSoundboardSoundUpdate{},
	"MESSAGE_REACTION_REMOVE_EMOJI":   discord.MessageReactionRemoveEmoji{},
	"RATE_LIMITED":                    discord.RateLimited{},
	"SOUNDBOARD_SOUNDS":               discord.SoundboardSounds{},
	"STAGE_INSTANCE_CREATE":           discord.StageInstanceCreate{},
	"STAGE_INSTANCE_DELETE":           discord.StageInstanceDelete{},
	"STAGE_INSTANCE_UPDATE":           discord.StageInstanceUpdate{},
	"VOICE_CHANNEL_EFFECT_SEND":       discord.VoiceChannelEffectSend{},
	"VOICE_CHANNEL_START_TIME_UPDATE": discord.VoiceChannelStartTimeUpdate{},
	"VOICE_CHANNEL_STATUS_UPDATE":     discord.VoiceChannelStatusUpdate{},
}

func TestTypesHaveEveryMember(t *testing.T) {
	t.Parallel()
	for eventType, zero := range types {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(corpus.Dispatch(eventType).Payload, &members); err != nil {
			t.Fatal(err)
		}
		checkMembers(t, eventType, reflect.TypeOf(zero), members)
	}
}

// checkMembers reports members that a struct has no field for, down to the
// structs of this package.
func checkMembers(t *testing.T, path string, typ reflect.Type, members map[string]json.RawMessage) {
	t.Helper()
	for name, value := range members {
		field, ok := fieldOf(typ, name)
		if !ok {
			t.Errorf("%s: %v has no field for %q", path, typ, name)
			continue
		}
		for field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
			field = field.Elem()
		}
		if field.Kind() != reflect.Struct || !strings.HasSuffix(field.PkgPath(), "listener/discord") {
			continue
		}
		list := []map[string]json.RawMessage{nil}
		into := any(&list[0])
		if value[0] == '[' {
			into = &list
		}
		if err := json.Unmarshal(value, into); err != nil {
			t.Fatal(err)
		}
		for _, members := range list {
			checkMembers(t, path+"."+name, field, members)
		}
	}
}

func fieldOf(typ reflect.Type, member string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(typ) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == member {
			return f.Type, true
		}
	}
	return nil, false
}

func TestVoiceChannelEffectSend(t *testing.T) {
	t.Parallel()
	basic := discord.AnimationTypeBasic
	tests := []struct {
		text string
		want discord.VoiceChannelEffectSend
	}{
		{`{"channel_id":"1","sound_id":4,"sound_volume":0.5}`, discord.VoiceChannelEffectSend{ChannelID: "1", SoundID: "4", SoundVolume: 0.5}},
		{`{"sound_id":"1435282547506368715","animation_type":1,"animation_id":3}`,
			discord.VoiceChannelEffectSend{SoundID: "1435282547506368715", AnimationType: &basic, AnimationID: 3}},
		{`{"sound_id":18446744073709551615}`, discord.VoiceChannelEffectSend{SoundID: "18446744073709551615"}},
		{`{"sound_id":null,"animation_type":null}`, discord.VoiceChannelEffectSend{}},
		{`{}`, discord.VoiceChannelEffectSend{}},
	}
	for _, test := range tests {
		got := discord.VoiceChannelEffectSend{SoundID: "left over"}
		if err := json.Unmarshal([]byte(test.text), &got); err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
	}
	for _, text := range []string{`{"sound_id":1.5}`, `{"sound_id":true}`, `{"sound_id":[]}`, `{"channel_id":1}`, `7`} {
		var got discord.VoiceChannelEffectSend
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s: decoded as %+v", text, got)
		}
	}
}

func TestRateLimitedWait(t *testing.T) {
	t.Parallel()
	r := discord.RateLimited{RetryAfter: 12.453}
	if got, want := r.Wait(), 12453*time.Millisecond; got != want {
		t.Errorf("Wait() = %v, want %v", got, want)
	}
}
