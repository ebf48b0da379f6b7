package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
)

// TestReaderFollowsTheStore reads what a store wrote for dispatches that move
// something beside an entity, or take a part of it away.
func TestReaderFollowsTheStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	r := newReader(t, b)
	ctx := t.Context()
	message := snowflake(time.Now(), 1)
	about := `"guild_id":"9","channel_id":"10","message_id":"` + message + `"`
	b.do("READY", `{"user":{"id":"1","username":"bot"},"guilds":[]}`)
	b.do("GUILD_CREATE", `{"id":"9","name":"g","owner_id":"2","member_count":2,"roles":[{"id":"9","permissions":"3072"},{"id":"5","permissions":"8192"}],
		"channels":[{"id":"10","type":0},{"id":"11","type":2}],"threads":[{"id":"20","type":12,"parent_id":"10","member_count":1,"member":{"flags":1}}],
		"members":[{"user":{"id":"1"},"roles":["5"]},{"user":{"id":"2"},"roles":[]}],"presences":[],"voice_states":[]}`)
	b.do("MESSAGE_CREATE", `{"id":"`+message+`","guild_id":"9","channel_id":"10","content":"?","poll":{"question":{"text":"?"},"answers":[]}}`)

	b.do("MESSAGE_REACTION_ADD", `{`+about+`,"user_id":"2","emoji":{"id":null,"name":"x"},"type":0,"burst":false}`)
	b.do("MESSAGE_REACTION_ADD", `{`+about+`,"user_id":"1","emoji":{"id":null,"name":"x"},"type":0,"burst":false}`)
	b.do("MESSAGE_POLL_VOTE_ADD", `{`+about+`,"user_id":"2","answer_id":3}`)
	m, err := r.Message(ctx, "9", "10", message)
	if err != nil || len(m.Reactions) != 1 || m.Reactions[0].Count != 2 || !m.Reactions[0].Me {
		t.Errorf("after two reactions the message is %+v, %v", m, err)
	} else if c := m.Poll.Results.AnswerCounts; len(c) != 1 || c[0].ID != 3 || c[0].Count != 1 {
		t.Errorf("after a vote its poll is %+v", m.Poll.Results)
	}
	if all := gather(t, r.Messages(ctx, "9", "10", 5)); len(all) != 1 || len(all[0].Reactions) != 1 {
		t.Errorf("the channel's messages are %+v", all)
	}
	b.do("MESSAGE_REACTION_REMOVE_ALL", `{`+about+`}`)
	if m, err := r.Message(ctx, "9", "10", message); err != nil || len(m.Reactions) != 0 {
		t.Errorf("without reactions the message is %+v, %v", m, err)
	}

	b.do("GUILD_MEMBER_ADD", `{"guild_id":"9","user":{"id":"3"},"roles":[]}`)
	b.do("THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"9","member_count":2,"added_members":[{"id":"20","user_id":"3","flags":0,"join_timestamp":"2024-01-01T00:00:00Z"}]}`)
	b.do("VOICE_CHANNEL_STATUS_UPDATE", `{"id":"11","guild_id":"9","status":"reading"}`)
	b.do("GUILD_MEMBER_UPDATE", `{"guild_id":"9","user":{"id":"4"},"roles":["5"]}`) // of one never seen
	if g, err := r.Guild(ctx, "9"); err != nil || g.MemberCount != 3 {
		t.Errorf("after one came the guild is %+v, %v", g, err)
	}
	if c, err := r.Channel(ctx, "9", "20"); err != nil || c.MemberCount != 2 {
		t.Errorf("after one joined the thread is %+v, %v", c, err)
	}
	if c, err := r.VoiceChannel(ctx, "9", "11"); err != nil || c.Status != "reading" {
		t.Errorf("the voice channel is %+v, %v", c, err)
	}
	if m, err := r.ThreadMember(ctx, "9", "20", "3"); err != nil || m.UserID != "3" || m.ID != "20" {
		t.Errorf("the thread's member is %+v, %v", m, err)
	}
	batch := r.Batch()
	seen, part := batch.Member("9", "3"), batch.Member("9", "4")
	if err := batch.Read(ctx); err != nil || seen.Partial() || !part.Partial() {
		t.Errorf("partial are %v and %v, %v; want the one of whom there was an update alone", seen.Partial(), part.Partial(), err)
	}
	// In the private thread are the bot and 3, and no more: its owner, who may see
	// everything, and the other one are not.
	const see, write = discordgo.PermissionViewChannel, discordgo.PermissionSendMessages
	for userID, want := range map[string]int64{"1": see | discordgo.PermissionManageMessages, "2": cache.AllPermissions, "3": see, "4": 0} {
		if p, err := r.Permissions(ctx, "9", "20", userID); err != nil || p != want {
			t.Errorf("permissions of %s in the thread are %b, %v, want %b", userID, p, err, want)
		}
	}
	b.do("GUILD_ROLE_DELETE", `{"guild_id":"9","role_id":"5"}`)
	if m, err := r.Member(ctx, "9", "1"); err != nil || len(m.Roles) != 0 {
		t.Errorf("after its role was deleted the member is %+v, %v", m, err)
	}
	if p, err := r.Permissions(ctx, "9", "10", "1"); err != nil || p != see|write {
		t.Errorf("after their role was deleted their permissions are %b, %v", p, err)
	}
	b.do("GUILD_DELETE", `{"id":"9","unavailable":true}`)
	if g, err := r.Guild(ctx, "9"); err != nil || !g.Unavailable || g.Name != "g" {
		t.Errorf("in an outage the guild is %+v, %v", g, err)
	}
	b.do("GUILD_DELETE", `{"id":"9"}`)
	for _, err := range []error{
		second(r.Guild(ctx, "9")), second(r.Channel(ctx, "9", "20")), firstError(t, r.Members(ctx, "9")), second(r.Message(ctx, "9", "10", message)),
		second(r.ThreadMember(ctx, "9", "20", "3")), second(r.Permissions(ctx, "9", "10", "1")),
	} {
		if !errors.Is(err, cache.ErrNotCached) {
			t.Errorf("of a guild that is gone: %v", err)
		}
	}
	if ids, err := r.GuildIDs(ctx); err != nil || len(ids) != 0 {
		t.Errorf("guilds = %v, %v", ids, err)
	}
}

// TestReaderReadsTheRecordedSession decodes everything that the recorded session
// leaves in the cache, and finds each of it by its id.
func TestReaderReadsTheRecordedSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	r := newReader(t, b)
	ctx := t.Context()
	for _, e := range corpus.SessionEnvelopes() {
		b.build(e.Type, string(e.Payload))
	}
	b.commit()
	ids, err := r.GuildIDs(ctx)
	if err != nil || len(ids) != 4 {
		t.Fatalf("guilds = %v, %v, want 4", ids, err)
	}
	counts := make(map[string]int)
	for _, id := range ids {
		for kind, n := range map[string]int{
			"channel":         len(gather(t, r.Channels(ctx, id))),
			"thread":          len(gather(t, r.Threads(ctx, id))),
			"role":            len(gather(t, r.Roles(ctx, id))),
			"member":          len(gather(t, r.Members(ctx, id))),
			"presence":        len(gather(t, r.Presences(ctx, id))),
			"voice_state":     len(gather(t, r.VoiceStates(ctx, id))),
			"scheduled_event": len(gather(t, r.ScheduledEvents(ctx, id))),
		} {
			entities := 0
			for _, field := range b.rdb.HKeys(ctx, b.keys.Cache(kind+":"+id)).Val() {
				if !strings.Contains(field, ":") {
					entities++
				}
			}
			if n != entities {
				t.Errorf("%d of kind %s in guild %s, want %d", n, kind, id, entities)
			}
			counts[kind] += n
		}
		if err := everythingOf(ctx, r, id); err != nil {
			t.Error(err)
		}
	}
	if counts["member"] < 1000 || counts["channel"] < 20 || counts["role"] < 20 {
		t.Errorf("read %v: the test proves little", counts)
	}
}

// everythingOf asks for what else there is in a guild, each by its id.
func everythingOf(ctx context.Context, r *cache.Reader, guildID string) error {
	b := r.Batch()
	guild, emojis, stickers := b.Guild(guildID), b.Emojis(guildID), b.Stickers(guildID)
	channels, roles := b.Channels(guildID), b.Roles(guildID)
	if err := b.Read(ctx); err != nil {
		return err
	}
	for _, err := range []error{second(guild.Get()), second(emojis.Get()), second(stickers.Get()), second(roles.Get())} {
		if err != nil {
			return err
		}
	}
	all, err := channels.Get()
	if err != nil {
		return err
	}
	n := 0
	for m, err := range r.Members(ctx, guildID) {
		if err != nil {
			return err
		}
		if n++; n > 50 {
			break
		}
		b := r.Batch()
		may := make([]*cache.Item[int64], len(all))
		for i, c := range all {
			may[i] = b.Permissions(guildID, c.ID, m.User.ID)
		}
		if err := b.Read(ctx); err != nil {
			return err
		}
		for i, c := range all {
			if _, err := may[i].Get(); err != nil {
				return fmt.Errorf("permissions of %s in %s: %w", m.User.ID, c.ID, err)
			}
		}
	}
	return nil
}
