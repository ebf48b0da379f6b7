package cache_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/cache"
)

// TestBatch reads what a message handler wants in one round trip, of several
// shards, with an error for just what is not known.
func TestBatch(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 3)
	l.guild9()
	const other = "8388608" // on shard 2
	l.put(other, "guild", other, ` {"id":"8388608","name":"far"}`)
	b := r.Batch()
	guild, thread, member, of := b.Guild("9"), b.Channel("9", "20"), b.Member("9", "1"), b.MemberRoles("9", "1")
	far, channels, roles, emojis := b.Guild(other), b.Channels("9"), b.Roles("9"), b.Emojis("9")
	members, states := b.Members("9", []string{"2", "404", "1"}), b.VoiceStates("9", []string{"404", "2"})
	presences, nobody := b.Presences("9", []string{"2"}), b.Members("9", nil)
	missing, empty, unknown := b.Member("9", "404"), b.Channels(other), b.Roles("8")
	may := b.Permissions("9", "20", "1")
	if _, err := guild.Get(); err == nil || errors.Is(err, cache.ErrNotCached) {
		t.Errorf("an item before its batch is read: %v", err)
	}
	l.inTrips("the batch", 1, func() {
		if err := b.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if g, err := guild.Get(); err != nil || g.MemberCount != 12 {
		t.Errorf("guild = %+v, %v", g, err)
	}
	if c, err := thread.Get(); err != nil || c.ParentID != "10" || c.GuildID != "9" {
		t.Errorf("thread = %+v, %v", c, err)
	}
	if m, err := member.Get(); err != nil || cmp.Diff([]string{"5", "6"}, m.Roles) != "" || member.Partial() {
		t.Errorf("member = %+v, %v, partial %v", m, err, member.Partial())
	}
	if rs, err := of.Get(); err != nil || len(rs) != 2 || rs[0].ID != "6" {
		t.Errorf("roles of the member = %+v, %v", rs, err)
	}
	if g, err := far.Get(); err != nil || g.Name != "far" || !far.Partial() {
		t.Errorf("guild of another shard = %+v, %v, partial %v; want the mark read and taken off", g, err, far.Partial())
	}
	if raw, err := far.Raw(); err != nil || string(raw) != `{"id":"8388608","name":"far"}` {
		t.Errorf("raw guild = %s, %v", raw, err)
	}
	if cs, err := channels.Get(); err != nil || len(cs) != 2 || cs[0].ID != "10" || cs[1].GuildID != "9" {
		t.Errorf("channels = %+v, %v", cs, err)
	}
	if rs, err := roles.Get(); err != nil || len(rs) != 3 || rs[0].ID != "5" {
		t.Errorf("roles = %+v, %v", rs, err)
	}
	if es, err := emojis.Get(); err != nil || len(es) != 2 {
		t.Errorf("emojis = %+v, %v", es, err)
	}
	if ms, err := members.Get(); err != nil || len(ms) != 2 || ms[0].User.ID != "2" || len(ms[0].Roles) != 0 || !members.Partial() {
		t.Errorf("members = %+v, %v", ms, err)
	}
	if vs, err := states.Get(); err != nil || len(vs) != 1 || vs[0].ChannelID != "12" {
		t.Errorf("voice states = %+v, %v", vs, err)
	}
	if ps, err := presences.Get(); err != nil || len(ps) != 1 || ps[0].Status != "dnd" {
		t.Errorf("presences = %+v, %v", ps, err)
	}
	if ms, err := nobody.Get(); err != nil || ms == nil || len(ms) != 0 {
		t.Errorf("members of no ids = %+v, %v", ms, err)
	}
	if m, err := missing.Get(); !errors.Is(err, cache.ErrNotCached) || m != nil || !strings.Contains(err.Error(), "member 404") {
		t.Errorf("a member that is not there = %+v, %v", m, err)
	}
	if cs, err := empty.Get(); err != nil || len(cs) != 0 {
		t.Errorf("channels of a guild without any = %+v, %v", cs, err)
	}
	if rs, err := unknown.Get(); !errors.Is(err, cache.ErrNotCached) || !strings.Contains(err.Error(), "guild 8") {
		t.Errorf("roles of a guild that is not known = %+v, %v", rs, err)
	}
	if p, err := may.Get(); err != nil || p != cache.AllPermissions {
		t.Errorf("permissions of the owner = %x, %v", p, err)
	}

	l.put("9", "member:9", "404", `{"user":{"id":"404"}}`)
	if err := b.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := missing.Get(); err != nil || m.User.ID != "404" {
		t.Errorf("read again, the member that is there by now = %+v, %v", m, err)
	}
	l.inTrips("an empty batch", 0, func() {
		if err := r.Batch().Read(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBatchFails has an error of Redis, and one about an id, as the batch's own,
// and what was answered nevertheless.
func TestBatchFails(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 1)
	l.guild9()
	l.rdb.Del(t.Context(), l.key("9", "presence:9"))
	l.rdb.Set(t.Context(), l.key("9", "presence:9"), "x", 0)
	b := r.Batch()
	guild, presence := b.Guild("9"), b.Presence("9", "1")
	if err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), "presence 1") {
		t.Errorf("Read = %v, want what Redis says of the presences", err)
	}
	if _, err := presence.Get(); err == nil || errors.Is(err, cache.ErrNotCached) {
		t.Errorf("the presence: %v", err)
	}
	if g, err := guild.Get(); err != nil || g.Name != "g" {
		t.Errorf("the guild = %+v, %v", g, err)
	}
	b = r.Batch()
	nine := b.Guild("nine")
	if err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), `"nine"`) {
		t.Errorf("Read = %v, want the id that can't be one", err)
	}
	if _, err := nine.Get(); err == nil || errors.Is(err, cache.ErrNotCached) {
		t.Errorf("the guild: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b = r.Batch()
	guild = b.Guild("9")
	if err := b.Read(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Read under an ended context = %v", err)
	}
	if g, err := guild.Get(); !errors.Is(err, context.Canceled) {
		t.Errorf("the guild = %+v, %v", g, err)
	}
}
