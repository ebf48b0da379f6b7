package cache_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A layout is a cache written by hand, as the package documents it.
type layout struct {
	t      testing.TB
	rdb    *redis.Client
	prefix string
	shards int
	trips  atomic.Int64 // round trips of the reader
}

func newLayout(t testing.TB, shards int) (*layout, *cache.Reader) {
	t.Helper()
	l := &layout{t: t, rdb: redistest.Client(t), prefix: redistest.Prefix(t), shards: shards}
	r, err := cache.NewReader(l.counted(), l.prefix, shards)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// counted returns a client that counts its round trips.
func (l *layout) counted() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: l.rdb.Options().Addr})
	l.t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(countTrips{&l.trips})
	return rdb
}

type countTrips struct{ n *atomic.Int64 }

// count counts what is not part of connecting.
func (c countTrips) count(first redis.Cmder) {
	if name := first.Name(); name != "hello" && name != "client" {
		c.n.Add(1)
	}
}

func (c countTrips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c countTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c countTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds[0])
		return next(ctx, cmds)
	}
}

// inTrips fails the test if f takes another number of round trips.
func (l *layout) inTrips(what string, want int64, f func()) {
	l.t.Helper()
	before := l.trips.Load()
	f()
	if got := l.trips.Load() - before; got != want {
		l.t.Errorf("%s took %d round trips, want %d", what, got, want)
	}
}

func (l *layout) key(guildID, name string) string {
	shard := 0
	if guildID != "" {
		shard, _ = wire.ShardOf(guildID, l.shards)
	}
	return wire.NewShard(l.prefix, shard, l.shards).Cache(name)
}

// put writes fields and values into a hash of a guild's shard.
func (l *layout) put(guildID, name string, fields ...any) {
	l.t.Helper()
	if err := l.rdb.HSet(l.t.Context(), l.key(guildID, name), fields...).Err(); err != nil {
		l.t.Fatal(err)
	}
}

// gather collects what an iterator yields.
func gather[T any](t testing.TB, all iter.Seq2[*T, error]) []*T {
	t.Helper()
	got := []*T{}
	for v, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	return got
}

// firstError returns the error that an iterator ends with, and fails the test if
// it goes on after it.
func firstError[T any](t testing.TB, all iter.Seq2[*T, error]) (first error) {
	t.Helper()
	for v, err := range all {
		if first != nil || (err != nil) != (v == nil) {
			t.Errorf("yielded %v, %v after %v", v, err, first)
		}
		first = err
	}
	return first
}

// guild9 writes a guild with one of everything that can be in it.
func (l *layout) guild9() {
	l.put("9", "guild", "9", `{"id":"9","name":"g","owner_id":"1","member_count":10,"unavailable":false}`, "9:member_count", "12")
	l.put("9", "role:9", "9", `{"id":"9","name":"@everyone"}`, "5", `{"id":"5","name":"low","position":1}`, "6", `{"id":"6","name":"high","position":2}`)
	l.put("9", "channel:9", "10", `{"id":"10","name":"c"}`, "11", `{"id":"11","type":2,"name":"v"}`, "11:voice", `{"status":"reading","voice_start_time":7}`)
	l.put("9", "thread:9", "20", `{"id":"20","type":11,"parent_id":"10","member_count":1}`, "20:member_count", "3", "20:voice", `{"status":"x"}`)
	l.put("9", "member:9", "1", `{"user":{"id":"1"},"roles":["5","77","6"]}`, "2", ` {"user":{"id":"2"},"roles":["77"]}`)
	l.put("9", "presence:9", "1", `{"user":{"id":"1"},"status":"idle"}`, "2", `{"user":{"id":"2"},"status":"dnd"}`)
	l.put("9", "voice_state:9", "1", `{"user_id":"1","channel_id":"11"}`, "2", `{"user_id":"2","channel_id":"12"}`, "3:left", `{"user_id":"3","channel_id":"11"}`)
	l.put("9", "thread_member:20", "1", `{"user_id":"1","flags":1,"join_timestamp":"2024-01-01T00:00:00Z"}`)
	l.put("9", "emojis", "9", `[{"id":"30","name":"e"},{"id":"31","name":"f"}]`)
	l.put("9", "stickers", "9", `[{"id":"40","name":"s"}]`)
	l.put("9", "scheduled_event:9", "50", `{"id":"50","name":"party"}`)
	l.put("9", "stage_instance:9", "60", `{"id":"60","topic":"t"}`)
	l.put("9", "soundboard_sound:9", "70", `{"sound_id":"70","name":"quack"}`)
	l.put("9", "automod_rule:9", "80", `{"id":"80","name":"no"}`)
	l.put("9", "ban:9", "90", `{"guild_id":"9","user":{"id":"90"}}`)
	l.put("9", "invite:9", "abc", `{"code":"abc","guild_id":"9","channel_id":"10","max_uses":3}`)
	l.put("9", "integration:9", "95", `{"id":"95","name":"tv","guild_id":"9"}`)
	l.put("", "entitlement", "96", `{"id":"96","sku_id":"s"}`)
	l.put("", "subscription", "97", `{"id":"97","user_id":"u"}`)
	l.put("", "user", "@me", `{"id":"1","username":"bot"}`)
}

// TestReaderReadsEachKind reads one, by id and all of each kind, with the ids of
// parents filled in, in one round trip for one entity.
func TestReaderReadsEachKind(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 3)
	l.guild9()
	for _, k := range []readCase{
		kindCase("guild", r.Guild, r.Guilds, "9", `{"id":"9","name":"g","member_count":12}`, 1),
		childCase("channel", r.Channel, r.Channels, "10", `{"id":"10","name":"c","guild_id":"9"}`, 2),
		childCase("thread", r.Channel, r.Threads, "20", `{"id":"20","parent_id":"10","member_count":3,"guild_id":"9"}`, 1),
		childCase("role", r.Role, r.Roles, "6", `{"id":"6","name":"high"}`, 3),
		childCase("member", r.Member, r.Members, "1", `{"roles":["5","6"],"guild_id":"9"}`, 2),
		childCase("presence", r.Presence, r.Presences, "1", `{"status":"idle"}`, 2),
		childCase("voice state", r.VoiceState, r.VoiceStates, "1", `{"channel_id":"11","guild_id":"9"}`, 2),
		childCase("scheduled event", r.ScheduledEvent, r.ScheduledEvents, "50", `{"name":"party","guild_id":"9"}`, 1),
		childCase("stage instance", r.StageInstance, r.StageInstances, "60", `{"topic":"t","guild_id":"9"}`, 1),
		childCase("soundboard sound", r.SoundboardSound, r.SoundboardSounds, "70", `{"name":"quack","guild_id":"9"}`, 1),
		childCase("automod rule", r.AutoModRule, r.AutoModRules, "80", `{"name":"no","guild_id":"9"}`, 1),
		childCase("ban", r.Ban, r.Bans, "90", `{"user":{"id":"90"}}`, 1),
		childCase("invite", r.Invite, r.Invites, "abc", `{"max_uses":3,"channel_id":"10","guild_id":"9"}`, 1),
		childCase("integration", r.Integration, r.Integrations, "95", `{"name":"tv"}`, 1),
		kindCase("entitlement", r.Entitlement, r.Entitlements, "96", `{"sku_id":"s"}`, 1),
		kindCase("subscription", r.Subscription, r.Subscriptions, "97", `{"user_id":"u"}`, 1),
	} {
		t.Run(k.name, func(t *testing.T) {
			l.inTrips("one", 1, func() {
				got, err := k.one(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if diff := partsOf(t, k.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
			if got, err := k.none(t.Context()); !errors.Is(err, cache.ErrNotCached) || !strings.Contains(err.Error(), "404") {
				t.Errorf("one that is not there = %v, %v, want an error that says %q and names it", got, err, cache.ErrNotCached)
			}
			if got := k.all(t.Context()); len(got) != k.n {
				t.Errorf("all: %d, want %d", len(got), k.n)
			}
		})
	}
	if u, err := r.Self(t.Context()); err != nil || u.Username != "bot" {
		t.Errorf("Self = %+v, %v", u, err)
	}
	if m, err := r.ThreadMember(t.Context(), "9", "20", "1"); err != nil || m.UserID != "1" || m.ID != "20" {
		t.Errorf("ThreadMember = %+v, %v", m, err)
	}
	if m := gather(t, r.ThreadMembers(t.Context(), "9", "20")); len(m) != 1 || m[0].ID != "20" {
		t.Errorf("ThreadMembers = %+v", m)
	}
	if e, err := r.Emoji(t.Context(), "9", "31"); err != nil || e.Name != "f" {
		t.Errorf("Emoji = %+v, %v", e, err)
	}
	if c, err := r.VoiceChannel(t.Context(), "9", "11"); err != nil || c.Name != "v" || c.GuildID != "9" || c.Status != "reading" || c.VoiceStartTime != 7 {
		t.Errorf("VoiceChannel = %+v, %v", c, err)
	}
	if s, err := r.Sticker(t.Context(), "9", "40"); err != nil || s.Name != "s" || s.GuildID != "9" {
		t.Errorf("Sticker = %+v, %v", s, err)
	}
	if _, err := r.Emoji(t.Context(), "9", "40"); !errors.Is(err, cache.ErrNotCached) || !strings.Contains(err.Error(), "emoji 40") {
		t.Errorf("an emoji that is not there: %v", err)
	}
	if v := gather(t, r.ChannelVoiceStates(t.Context(), "9", "11")); len(v) != 1 || v[0].UserID != "1" {
		t.Errorf("ChannelVoiceStates = %+v, want user 1's", v)
	}
	if roles, err := r.MemberRoles(t.Context(), "9", "1"); err != nil || len(roles) != 2 || roles[0].Name != "high" || roles[1].Name != "low" {
		t.Errorf("MemberRoles = %+v, %v, want the highest first", roles, err)
	}
	if roles, err := r.MemberRoles(t.Context(), "9", "3"); !errors.Is(err, cache.ErrNotCached) {
		t.Errorf("MemberRoles of nobody = %v, %v", roles, err)
	}
}

// A readCase is a kind: how one is read, one that is not there, and all.
type readCase struct {
	name string
	one  func(ctx context.Context) (any, error)
	none func(ctx context.Context) (any, error)
	all  func(ctx context.Context) []any
	want string // some of the JSON of the one
	n    int    // how many there are
}

func kindCase[T any](name string, one func(context.Context, string) (*T, error), all func(context.Context, ...string) iter.Seq2[*T, error], id, want string, n int) readCase {
	return readCase{
		name: name, want: want, n: n,
		one:  func(ctx context.Context) (any, error) { return one(ctx, id) },
		none: func(ctx context.Context) (any, error) { return one(ctx, "404") },
		all: func(ctx context.Context) []any {
			if some := anys(all(ctx, "404", id)); len(some) != 1 {
				return []any{name + " by id", some}
			}
			return anys(all(ctx))
		},
	}
}

func childCase[T any](name string, one func(context.Context, string, string) (*T, error), all func(context.Context, string, ...string) iter.Seq2[*T, error], id, want string, n int) readCase {
	c := kindCase(name, func(ctx context.Context, id string) (*T, error) { return one(ctx, "9", id) },
		func(ctx context.Context, ids ...string) iter.Seq2[*T, error] { return all(ctx, "9", ids...) }, id, want, n)
	in := c.all
	c.all = func(ctx context.Context) []any {
		if none := anys(all(ctx, "8")); len(none) != 1 || !isNotCached(none[0]) {
			return []any{name + " of another guild", none, 0, 0}
		}
		return in(ctx)
	}
	return c
}

func anys[T any](all iter.Seq2[*T, error]) (got []any) {
	for v, err := range all {
		if err != nil {
			return append(got, err)
		}
		got = append(got, v)
	}
	return got
}

func isNotCached(v any) bool {
	err, is := v.(error)
	return is && errors.Is(err, cache.ErrNotCached)
}

// partsOf compares the members that want has.
func partsOf(t testing.TB, want string, got any) string {
	t.Helper()
	var w, g map[string]any
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal([]byte(want), &w), json.Unmarshal(text, &g)); err != nil {
		t.Fatal(err)
	}
	for name := range g {
		if _, asked := w[name]; !asked {
			delete(g, name)
		}
	}
	if user, is := g["user"].(map[string]any); is {
		g["user"] = map[string]any{"id": user["id"]}
	}
	return cmp.Diff(w, g)
}

// TestReaderLaysOver reads what lies beside entities laid over them.
func TestReaderLaysOver(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 1)
	l.guild9()
	l.put("9", "message:10:0",
		"100", `{"id":"100","channel_id":"10","content":"hi","reactions":[{"count":1,"me":false,"emoji":{"id":null,"name":"a"}}]}`,
		"100:reactions", `[{"emoji":{"id":null,"name":"a"},"count":2,"me":true},{"emoji":{"id":"5","name":"b"},"count":1,"me":false}]`,
		"101", `{"id":"101","channel_id":"10","poll":{"question":{"text":"?"},"results":{"is_finalized":true,"answer_counts":[{"id":1,"count":1,"me_voted":false}]}}}`,
		"101:poll", `{"answer_counts":[{"id":1,"count":3,"me_voted":true}]}`,
		"102", `{"id":"102","channel_id":"10","poll":{"question":{"text":"?"}}}`,
		"102:poll", `{"answer_counts":[{"id":2,"count":1,"me_voted":false}]}`,
		"103", `{"id":"103","channel_id":"10"}`, "103:poll", `{"answer_counts":[]}`)
	for _, c := range []struct{ name, want string }{
		{"guild 9", `{"id":"9","name":"g","owner_id":"1","member_count":12,"unavailable":false}`},
		{"channel 11", `{"id":"11","type":2,"name":"v","status":"reading","voice_start_time":7}`},
		{"thread 20", `{"id":"20","type":11,"parent_id":"10","member_count":3,"status":"x"}`},
		{"message 100", `{"id":"100","channel_id":"10","content":"hi","reactions":[{"emoji":{"id":null,"name":"a"},"count":2,"me":true},{"emoji":{"id":"5","name":"b"},"count":1,"me":false}]}`},
		{"message 101", `{"id":"101","channel_id":"10","poll":{"question":{"text":"?"},"results":{"is_finalized":true,"answer_counts":[{"id":1,"count":3,"me_voted":true}]}}}`},
		{"message 102", `{"id":"102","channel_id":"10","poll":{"question":{"text":"?"},"results":{"answer_counts":[{"id":2,"count":1,"me_voted":false}]}}}`},
		{"message 103", `{"id":"103","channel_id":"10"}`},
		{"member 1", `{"user":{"id":"1"},"roles":["5","6"]}`},
		{"member 2", `{"user":{"id":"2"},"roles":[]}`},
	} {
		kind, id, _ := strings.Cut(c.name, " ")
		var got json.RawMessage
		var err error
		if kind == "message" {
			got, err = r.RawMessage(t.Context(), "9", "10", id)
		} else {
			got, err = r.Raw(t.Context(), kind, "9", id)
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s = %s, %v\nwant %s", c.name, got, err, c.want)
		}
	}
	m, err := r.Message(t.Context(), "9", "10", "100")
	if err != nil || len(m.Reactions) != 2 || m.Reactions[0].Count != 2 || !m.Reactions[0].Me || m.GuildID != "9" {
		t.Errorf("Message = %+v, %v, want the reactions beside it", m, err)
	}
	if m, err = r.Message(t.Context(), "9", "10", "101"); err != nil || m.Poll.Results.AnswerCounts[0].Count != 3 || !m.Poll.Results.Finalized {
		t.Errorf("Message = %+v, %v, want the votes beside it", m, err)
	}
	if all := gather(t, r.Threads(t.Context(), "9")); len(all) != 1 || all[0].MemberCount != 3 {
		t.Errorf("Threads = %+v", all)
	}
	if all := gather(t, r.Guilds(t.Context())); len(all) != 1 || all[0].MemberCount != 12 {
		t.Errorf("Guilds = %+v", all)
	}
}

// TestReaderWithoutRoles leaves members their roles where the guild's are not
// known, so that switching the kind off does not strip everybody.
func TestReaderWithoutRoles(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 1)
	l.put("9", "member:9", "1", `{"user":{"id":"1"},"roles":["5"]}`)
	if m, err := r.Member(t.Context(), "9", "1"); err != nil || !slices.Equal(m.Roles, []string{"5"}) {
		t.Errorf("Member = %+v, %v", m, err)
	}
}

// TestReaderTellsOutages marks guilds that are in one, as one and among all.
func TestReaderTellsOutages(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 2)
	for _, id := range []string{"9", "8", "4194304"} { // the last on shard 1
		l.put(id, "guild", id, `{"id":"`+id+`","unavailable":false}`)
	}
	for _, id := range []string{"8", "4194304", "7"} {
		l.rdb.SAdd(t.Context(), l.key(id, "unavailable"), id)
	}
	want := map[string]bool{"9": false, "8": true, "4194304": true}
	got := make(map[string]bool)
	for _, g := range gather(t, r.Guilds(t.Context())) {
		got[g.ID] = g.Unavailable
		if one, err := r.Guild(t.Context(), g.ID); err != nil || one.Unavailable != g.Unavailable {
			t.Errorf("Guild(%s) = %+v, %v", g.ID, one, err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unavailable (-want +got)\n%s", diff)
	}
	ids, err := r.GuildIDs(t.Context())
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []string{"4194304", "8", "9"}) {
		t.Errorf("GuildIDs = %v, %v", ids, err)
	}
	if _, err := r.Guild(t.Context(), "7"); !errors.Is(err, cache.ErrNotCached) {
		t.Errorf("a guild that READY announced and nothing more: %v", err)
	}
}

// TestReaderTellsNothingFromNone has an empty list of a guild that is known, and
// an error of one that is not.
func TestReaderTellsNothingFromNone(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 1)
	l.put("9", "guild", "9", `{"id":"9"}`, "9:member_count", "1", "8:member_count", "1")
	l.put("9", "thread:9", "20", `{"id":"20"}`)
	for name, c := range map[string]struct{ known, not error }{
		"channels":       {firstError(t, r.Channels(t.Context(), "9")), firstError(t, r.Channels(t.Context(), "8"))},
		"members":        {firstError(t, r.Members(t.Context(), "9")), firstError(t, r.Members(t.Context(), "8"))},
		"invites":        {firstError(t, r.Invites(t.Context(), "9")), firstError(t, r.Invites(t.Context(), "8"))},
		"voice states":   {firstError(t, r.ChannelVoiceStates(t.Context(), "9", "1")), firstError(t, r.ChannelVoiceStates(t.Context(), "8", "1"))},
		"thread members": {firstError(t, r.ThreadMembers(t.Context(), "9", "20")), firstError(t, r.ThreadMembers(t.Context(), "9", "21"))},
		"messages":       {firstError(t, r.Messages(t.Context(), "9", "10", 0)), cache.ErrNotCached},
	} {
		if c.known != nil || !errors.Is(c.not, cache.ErrNotCached) {
			t.Errorf("%s: %v where it is known, %v where not; want nil and %v", name, c.known, c.not, cache.ErrNotCached)
		}
	}
	if ids, err := r.GuildIDs(t.Context()); err != nil || !slices.Equal(ids, []string{"9"}) {
		t.Errorf("GuildIDs = %v, %v, want no values beside guilds", ids, err)
	}
	if err := firstError(t, r.Members(t.Context(), "nine")); err == nil || errors.Is(err, cache.ErrNotCached) {
		t.Errorf("members of a guild whose id is no number: %v", err)
	}
}

// bucketName returns the bucket of a message as the package documents it.
func bucketName(id string) string {
	n, _ := strconv.ParseUint(id, 10, 64)
	return strconv.FormatInt(int64(n>>22)/cache.BucketWidth.Milliseconds(), 10)
}

// TestReaderMessages yields a channel's newest messages first, over its buckets,
// in a guild and outside.
func TestReaderMessages(t *testing.T) {
	t.Parallel()
	for _, guildID := range []string{"9", ""} {
		l, r := newLayout(t, 2)
		now := time.Now()
		var want []string
		scope := guildID
		if scope == "" {
			scope = "10"
		}
		message := func(channelID string, at time.Time, n int64) string {
			id := snowflake(at, n)
			bucket := bucketName(id)
			l.put(guildID, "message:"+channelID+":"+bucket, id, `{"id":"`+id+`","channel_id":"`+channelID+`"}`, id+":reactions", `[{"count":5,"emoji":{"name":"x"}}]`)
			if err := l.rdb.ZAdd(t.Context(), l.key(guildID, "buckets:"+scope), redis.Z{Score: 1, Member: channelID + ":" + bucket}).Err(); err != nil {
				t.Fatal(err)
			}
			return id
		}
		for bucket := range 4 {
			for n := range int64(300) {
				want = append(want, message("10", now.Add(-time.Duration(bucket)*cache.BucketWidth), 299-n))
			}
		}
		message("100", now, 1)
		message("1", now, 1)
		for _, limit := range []int{0, 1, 300, 450, 5000} {
			var got []string
			l.inTrips("the messages", map[int]int64{0: 6, 1: 3, 300: 3, 450: 4, 5000: 6}[limit], func() {
				for _, m := range gather(t, r.Messages(t.Context(), guildID, "10", limit)) {
					got = append(got, m.ID)
					if m.GuildID != guildID || len(m.Reactions) != 1 || m.Reactions[0].Count != 5 {
						t.Fatalf("message = %+v", m)
					}
				}
			})
			n := len(want)
			if limit > 0 {
				n = min(limit, n)
			}
			if !slices.Equal(got, want[:n]) {
				t.Errorf("limit %d: %d messages, want the newest %d in their order", limit, len(got), n)
			}
		}
		for range r.Messages(t.Context(), guildID, "10", 0) {
			break // ends early without harm
		}
	}
}

// TestReaderLaysOverAll lays over everything that the table of dispatches has
// beside entities that are there.
func TestReaderLaysOverAll(t *testing.T) {
	t.Parallel()
	var want []string
	for _, b := range dispatch.Besides {
		if b.Beside != dispatch.Left { // of one who is not there
			want = append(want, string(b.Kind)+" "+string(b.Beside))
		}
	}
	got := cache.LaidOver()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestReaderRawAll yields the JSON of all of a kind, and of some in the order of
// their ids, of one shard and of several.
func TestReaderRawAll(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 2)
	l.guild9()
	l.put("4194304", "guild", "4194304", `{"id":"4194304"}`) // on shard 1
	l.put("4194304", "entitlement", "98", `{"id":"98"}`)
	for _, c := range []struct {
		kind, guildID string
		ids           []string
		want          string
	}{
		{"thread", "9", nil, `{"id":"20","type":11,"parent_id":"10","member_count":3,"status":"x"}`},
		{"member", "9", []string{"2", "404", "1"}, `{"user":{"id":"2"},"roles":[]} {"user":{"id":"1"},"roles":["5","6"]}`},
		{"guild", "", []string{"4194304", "9"}, `{"id":"4194304"} {"id":"9","name":"g","owner_id":"1","member_count":12,"unavailable":false}`},
		{"entitlement", "", []string{"98", "1", "96"}, `{"id":"98"} {"id":"96","sku_id":"s"}`},
	} {
		var got []string
		for raw, err := range r.RawAll(t.Context(), c.kind, c.guildID, c.ids...) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(raw))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.kind, got, c.want)
		}
	}
	for _, kind := range []string{"emojis", "message", "people"} {
		for raw, err := range r.RawAll(t.Context(), kind, "9") {
			if err == nil || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s: %s, %v", kind, raw, err)
			}
		}
	}
}

// twice returns the pages of scans with each of their fields twice, which Redis
// may do while a hash grows or shrinks.
type twice struct{ countTrips }

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if scan, is := cmd.(*redis.ScanCmd); is {
				page, cursor := scan.Val()
				scan.SetVal(slices.Concat(page, page), cursor)
			}
		}
		return err
	}
}

// TestReaderYieldsEachOnce has a scan return entities twice.
func TestReaderYieldsEachOnce(t *testing.T) {
	t.Parallel()
	l, _ := newLayout(t, 1)
	l.guild9()
	rdb := l.counted()
	rdb.AddHook(twice{countTrips{&l.trips}})
	r, err := cache.NewReader(rdb, l.prefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	if all := gather(t, r.Members(t.Context(), "9")); len(all) != 2 {
		t.Errorf("%d members, want 2", len(all))
	}
}
