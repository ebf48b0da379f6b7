package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cache"
)

func newReader(t testing.TB, b *bench) *cache.Reader {
	t.Helper()
	tag := strings.TrimSuffix(strings.TrimPrefix(b.keys.Tag(), "{"), ":0/1}")
	r, err := cache.NewReader(b.rdb, tag, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	r := newReader(t, b)
	ctx := t.Context()
	members := make([]string, 0, 1200)
	for i := range 1200 {
		members = append(members, fmt.Sprintf(`{"user":{"id":"%d","username":"u%d"},"roles":["5"]}`, 1000+i, i))
	}
	b.do("READY", `{"user":{"id":"1","username":"bot"},"guilds":[]}`)
	b.do("GUILD_CREATE", `{"id":"9","name":"g","roles":[{"id":"5","name":"r"},{"id":"6","name":"s"}],"channels":[{"id":"10","name":"c"}],"threads":[{"id":"11","name":"t","parent_id":"10"}],
		"members":[`+strings.Join(members, ",")+`],"presences":[{"user":{"id":"1000"},"status":"idle"}],"voice_states":[{"user_id":"1000","channel_id":"12"}],
		"stage_instances":[{"id":"13","topic":"x"}],"guild_scheduled_events":[{"id":"14","name":"e"}],"emojis":[{"id":"15","name":"em"}],"stickers":[]}`)
	id := snowflake(time.Now(), 1)
	b.do("MESSAGE_CREATE", `{"id":"`+id+`","channel_id":"10","guild_id":"9","content":"hi","components":[{"type":1}]}`)
	b.do("MESSAGE_UPDATE", `{"id":"`+id+`","channel_id":"10","guild_id":"9","content":"hello","components":[{"type":99,"x":1}]}`)

	if g, err := r.Guild(ctx, "9"); err != nil || g.Name != "g" {
		t.Errorf("Guild = %+v, %v", g, err)
	}
	if c, err := r.Channel(ctx, "9", "10"); err != nil || c.Name != "c" || c.GuildID != "9" {
		t.Errorf("Channel = %+v, %v", c, err)
	}
	if c, err := r.Channel(ctx, "9", "11"); err != nil || c.Name != "t" {
		t.Errorf("Channel of a thread = %+v, %v", c, err)
	}
	if x, err := r.Role(ctx, "9", "6"); err != nil || x.Name != "s" {
		t.Errorf("Role = %+v, %v", x, err)
	}
	if m, err := r.Member(ctx, "9", "1003"); err != nil || m.User.Username != "u3" || m.GuildID != "9" {
		t.Errorf("Member = %+v, %v", m, err)
	}
	if p, err := r.Presence(ctx, "9", "1000"); err != nil || p.Status != "idle" {
		t.Errorf("Presence = %+v, %v", p, err)
	}
	if v, err := r.VoiceState(ctx, "9", "1000"); err != nil || v.ChannelID != "12" || v.GuildID != "9" {
		t.Errorf("VoiceState = %+v, %v", v, err)
	}
	if m, err := r.Message(ctx, "9", "10", id); err != nil || m.Content != "hello" || m.GuildID != "9" {
		t.Errorf("Message = %+v, %v", m, err)
	}
	if e, err := r.Emojis(ctx, "9"); err != nil || len(e) != 1 || e[0].Name != "em" {
		t.Errorf("Emojis = %+v, %v", e, err)
	}
	if s, err := r.Stickers(ctx, "9"); err != nil || s == nil || len(s) != 0 {
		t.Errorf("Stickers = %+v, %v, want none", s, err)
	}
	if e, err := r.ScheduledEvent(ctx, "9", "14"); err != nil || e.Name != "e" {
		t.Errorf("ScheduledEvent = %+v, %v", e, err)
	}
	if s, err := r.StageInstance(ctx, "9", "13"); err != nil || s.Topic != "x" {
		t.Errorf("StageInstance = %+v, %v", s, err)
	}
	if u, err := r.Self(ctx); err != nil || u.Username != "bot" {
		t.Errorf("Self = %+v, %v", u, err)
	}
	n := 0
	for m, err := range r.Members(ctx, "9") {
		if err != nil || m.GuildID != "9" {
			t.Fatalf("Members: %+v, %v", m, err)
		}
		n++
	}
	if n != 1200 {
		t.Errorf("%d members, want 1200", n)
	}
	var names []string
	for m, err := range r.Members(ctx, "9", "1007", "5", "1001") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, m.User.Username)
	}
	if !slices.Equal(names, []string{"u7", "u1"}) {
		t.Errorf("members by id = %v, want those that are known, in order", names)
	}
	for range r.Members(ctx, "9") {
		break // ends early without harm
	}
	if raw, err := r.Raw(ctx, "role", "9", "5"); err != nil || string(raw) != `{"id":"5","name":"r"}` {
		t.Errorf("Raw = %s, %v", raw, err)
	}

	unknown := map[string]error{}
	_, unknown["guild"] = r.Guild(ctx, "8")
	_, unknown["channel"] = r.Channel(ctx, "9", "1")
	_, unknown["member"] = r.Member(ctx, "9", "1")
	_, unknown["message"] = r.Message(ctx, "9", "10", "1")
	_, unknown["emojis"] = r.Emojis(ctx, "8")
	for what, err := range unknown {
		if !errors.Is(err, cache.ErrNotCached) {
			t.Errorf("%s that is not there: %v, want %v", what, err, cache.ErrNotCached)
		}
	}
	if _, err := r.Guild(ctx, "nine"); err == nil || errors.Is(err, cache.ErrNotCached) {
		t.Errorf("a guild id that is no number: %v", err)
	}
	if _, err := r.Raw(ctx, "people", "9", "1"); err == nil || !strings.Contains(err.Error(), "voice_state") {
		t.Errorf("a kind that is none: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Guild(ended, "9"); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
}
