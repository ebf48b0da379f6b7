package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A bench is a store with its Redis, for tests that go step by step.
type bench struct {
	t      testing.TB
	rdb    *redis.Client
	keys   wire.Shard
	store  *cache.Store
	number uint64
	out    commands
	now    int64
}

func newBench(t testing.TB, cfg cache.Config) *bench {
	t.Helper()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	return &bench{t: t, rdb: rdb, keys: wire.NewShard(prefix, 0, 1), store: newStore(t, rdb, prefix, cfg), now: time.Now().UnixMilli()}
}

// build applies one change without committing it.
func (b *bench) build(eventType, payload string) *cache.Change {
	b.t.Helper()
	b.number++
	b.store.Begin(b.number)
	c := new(cache.Change)
	c.Set(eventType, []byte(payload), b.now)
	if _, err := b.store.Prefetch(b.t.Context(), b.rdb, []*cache.Change{c}); err != nil {
		b.t.Fatal(err)
	}
	if err := b.store.Apply(c, &b.out); err != nil {
		b.t.Fatalf("Apply(%s %s): %v", eventType, payload, err)
	}
	return c
}

// commit writes everything that was built.
func (b *bench) commit() {
	b.t.Helper()
	b.out.exec(b.t, b.rdb)
	b.store.Confirm(b.number)
}

// do builds and commits one change and returns its state.
func (b *bench) do(eventType, payload string) string {
	b.t.Helper()
	c := b.build(eventType, payload)
	state := string(c.State)
	b.commit()
	return state
}

// forget drops the memory: what is asked next comes from Redis.
func (b *bench) forget() {
	b.t.Helper()
	b.store.Reset()
	if err := b.store.Load(b.t.Context(), b.rdb); err != nil {
		b.t.Fatal(err)
	}
}

// cacheKeys lists the kinds of keys that are left, without the tag.
func (b *bench) cacheKeys() (names []string) {
	b.t.Helper()
	keys, err := b.rdb.Keys(b.t.Context(), strings.NewReplacer("[", `\[`).Replace(b.keys.Tag())+":cache:*").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, key := range keys {
		names = append(names, strings.TrimPrefix(key, b.keys.Tag()+":cache:"))
	}
	return names
}

func snowflake(at time.Time, n int64) string {
	const epoch = 1_420_070_400_000
	return fmt.Sprint((at.UnixMilli()-epoch)<<22 + n)
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := cache.NewStore("x", 0, 1, cache.Config{Off: []string{"people"}, MemoryBytes: -1, MessageAge: time.Millisecond, MessagesPerChannel: -2})
	for _, want := range []string{`"people"`, "MemoryBytes is -1", "MessageAge is 1ms", "MessagesPerChannel is -2", "voice_state"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// TestUnconfirmedIsPinned asks for what an unconfirmed commit wrote, deleted and
// dropped, while Redis still says otherwise and memory has no room for it.
func TestUnconfirmedIsPinned(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{MemoryBytes: 1})
	b.do("GUILD_CREATE", `{"id":"1","name":"old","roles":[{"id":"5","name":"old"},{"id":"6","name":"old"}],"channels":[{"id":"7"}],"members":[],"threads":[],"presences":[],"voice_states":[],"emojis":[],"stickers":[]}`)
	b.build("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"5","name":"new"}}`)
	b.build("GUILD_ROLE_DELETE", `{"guild_id":"1","role_id":"6"}`)
	b.build("CHANNEL_DELETE", `{"id":"7","guild_id":"1"}`)
	if got := string(b.build("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"5","name":"newer"}}`).State); got != `{"id":"5","name":"new"}` {
		t.Errorf("state of the written role = %s", got)
	}
	if got := string(b.build("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"6","name":"again"}}`).State); got != "" {
		t.Errorf("state of the deleted role = %s", got)
	}
	if got := string(b.build("CHANNEL_UPDATE", `{"id":"7","guild_id":"1","name":"x"}`).State); got != "" {
		t.Errorf("state of the deleted channel = %s", got)
	}
	b.commit()
	b.build("GUILD_DELETE", `{"id":"1"}`)
	for eventType, payload := range map[string]string{
		"GUILD_UPDATE": `{"id":"1","name":"x"}`, "GUILD_ROLE_UPDATE": `{"guild_id":"1","role":{"id":"5"}}`, "CHANNEL_UPDATE": `{"id":"7","guild_id":"1"}`,
	} {
		if got := string(b.build(eventType, payload).State); got != "" {
			t.Errorf("%s of a guild that is gone has state %s", eventType, got)
		}
	}
}

// TestMemoryIsBounded fills the memory and finds it within its limit once
// everything is confirmed, with nothing forgotten.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	b := newBench(t, cache.Config{MemoryBytes: limit})
	name := strings.Repeat("n", 500)
	for i := range 1000 {
		b.do("GUILD_ROLE_CREATE", fmt.Sprintf(`{"guild_id":"%d","role":{"id":"%d","name":"%s"}}`, i%40, i, name))
		if got := b.store.Bytes(); got > limit {
			t.Fatalf("memory holds %d bytes after %d roles, want at most %d", got, i+1, limit)
		}
	}
	for i := range 1000 {
		want := fmt.Sprintf(`{"id":"%d","name":"%s"}`, i, name)
		if got := b.do("GUILD_ROLE_DELETE", fmt.Sprintf(`{"guild_id":"%d","role_id":"%d"}`, i%40, i)); got != want {
			t.Fatalf("state of role %d = %.80q, want %.80q", i, got, want)
		}
	}
	b.store.Confirm(b.number)
	if got := b.store.Bytes(); got > limit {
		t.Errorf("memory holds %d bytes, want at most %d", got, limit)
	}
}

// TestRoundTrips counts what goes to Redis.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	b.do("GUILD_CREATE", `{"id":"1","name":"g","roles":[{"id":"5"}],"members":[],"presences":[],"channels":[],"threads":[],"emojis":[],"stickers":[]}`)
	misses := func(eventType, payload string) int {
		t.Helper()
		b.number++
		b.store.Begin(b.number)
		c := change(eventType, []byte(payload))
		n, err := b.store.Prefetch(t.Context(), b.rdb, []*cache.Change{c})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, test := range []struct {
		eventType, payload string
		warm, cold         int
	}{
		{"GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"5"}}`, 0, 1},
		{"PRESENCE_UPDATE", `{"guild_id":"1","user":{"id":"9"}}`, 0, 1}, // known to be absent
		{"MESSAGE_CREATE", `{"guild_id":"1","channel_id":"2","id":"3"}`, 0, 0},
		{"TYPING_START", `{"guild_id":"1","channel_id":"2","user_id":"3"}`, 0, 0},
		{"GUILD_CREATE", `{"id":"2","members":[{"user":{"id":"3"}}]}`, 0, 0},
	} {
		if got := misses(test.eventType, test.payload); got != test.warm {
			t.Errorf("%s: %d lookups in Redis, want %d", test.eventType, got, test.warm)
		}
	}
	b.forget()
	if got := misses("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"5"}}`); got != 1 {
		t.Errorf("cold: %d lookups in Redis, want 1", got)
	}
	if got := misses("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"5"}}`); got != 0 {
		t.Errorf("asked again: %d lookups in Redis, want 0", got)
	}
}

// trips counts what goes over a connection, but for what sets one up.
type trips struct{ n int }

func (h *trips) count(cmd redis.Cmder) {
	if name := cmd.Name(); name != "hello" && name != "client" {
		h.n++
	}
}

func (h *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count(cmd)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count(cmds[0])
		return next(ctx, cmds)
	}
}

// TestABatchIsReadInOneRoundTrip looks up one dispatch of each type together, with
// nothing in memory: one round trip. Once it is there: none.
func TestABatchIsReadInOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	fill(b)
	b.forget()
	counted := redis.NewClient(b.rdb.Options())
	t.Cleanup(func() { counted.Close() })
	var h trips
	counted.AddHook(&h)
	for i, want := range []int{1, 0} {
		b.number++
		b.store.Begin(b.number)
		var changes []*cache.Change
		for _, e := range recorded() {
			if do := dispatch.Lookup(e.Type).Cache.Do; do != dispatch.GuildDelete && do != dispatch.GuildCreate && do != dispatch.SyncThreads && do != dispatch.Remove || i == 0 {
				changes = append(changes, change(e.Type, e.Payload))
			}
		}
		h.n = 0
		if _, err := b.store.Prefetch(t.Context(), counted, changes); err != nil {
			t.Fatal(err)
		}
		if h.n != want {
			t.Errorf("%d round trips for %d dispatches, want %d", h.n, len(changes), want)
		}
	}
}

// TestCascades deletes parents, with and without memory of their children.
func TestCascades(t *testing.T) {
	t.Parallel()
	for _, cold := range []bool{false, true} {
		t.Run(fmt.Sprintf("cold %v", cold), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, cache.Config{})
			forget := func() {
				if cold {
					b.forget()
				}
			}
			message := func(guild, channel string, n int64) string {
				id := snowflake(time.Now().Add(time.Duration(n)*cache.BucketWidth), n)
				b.do("MESSAGE_CREATE", `{"id":"`+id+`","channel_id":"`+channel+`","guild_id":"`+guild+`"}`)
				return id
			}
			gone := func(guild, channel, id string) {
				t.Helper()
				forget()
				if got := b.do("MESSAGE_DELETE", `{"id":"`+id+`","channel_id":"`+channel+`","guild_id":"`+guild+`"}`); got != "" {
					t.Errorf("message %s of channel %s is still there: %s", id, channel, got)
				}
			}
			there := func(guild, channel, id string) {
				t.Helper()
				forget()
				if got := b.do("MESSAGE_UPDATE", `{"id":"`+id+`","channel_id":"`+channel+`","guild_id":"`+guild+`"}`); got == "" {
					t.Errorf("message %s of channel %s is gone", id, channel)
				}
			}
			// Two guilds whose ids begin alike.
			for _, guild := range []string{"90010000000000001", "900100000000000012"} {
				b.do("GUILD_CREATE", `{"id":"`+guild+`","name":"g","channels":[{"id":"10`+guild+`"}],"threads":[{"id":"20`+guild+`","parent_id":"10`+guild+`"}],"roles":[],"emojis":[{"id":"1"}],"stickers":[],
					"members":[{"user":{"id":"7"}}],"presences":[{"user":{"id":"7"}}],"voice_states":[{"user_id":"7"}]}`)
			}
			const a, z = "90010000000000001", "900100000000000012"
			inChannel, inThread, elsewhere := message(a, "10"+a, 0), message(a, "20"+a, 1), message(a, "30", 2)
			other := message(z, "10"+z, 3)

			forget()
			if got := b.do("CHANNEL_DELETE", `{"id":"10`+a+`","guild_id":"`+a+`"}`); got != `{"id":"10`+a+`"}` {
				t.Errorf("state of the channel = %s", got)
			}
			gone(a, "10"+a, inChannel)
			gone(a, "20"+a, inThread)
			there(a, "30", elsewhere)
			there(z, "10"+z, other)
			forget()
			if got := b.do("THREAD_DELETE", `{"id":"20`+a+`","guild_id":"`+a+`"}`); got != "" {
				t.Errorf("the channel's thread is still there: %s", got)
			}

			inThread = message(z, "20"+z, 4)
			forget()
			b.do("THREAD_DELETE", `{"id":"20`+z+`","guild_id":"`+z+`"}`)
			gone(z, "20"+z, inThread)
			there(z, "10"+z, other)

			forget()
			b.do("GUILD_MEMBER_REMOVE", `{"guild_id":"`+z+`","user":{"id":"7"}}`)
			forget()
			if got := b.do("PRESENCE_UPDATE", `{"guild_id":"`+z+`","user":{"id":"7"}}`); got != "" {
				t.Errorf("the presence of a member who left is still there: %s", got)
			}

			// An outage keeps everything.
			forget()
			if got := b.do("GUILD_DELETE", `{"id":"`+a+`","unavailable":true}`); !strings.Contains(got, `"name":"g"`) {
				t.Errorf("state of the guild in an outage = %s", got)
			}
			there(a, "30", elsewhere)
			forget()
			if got := b.do("GUILD_DELETE", `{"id":"`+a+`"}`); !strings.Contains(got, `"name":"g"`) {
				t.Errorf("state of the guild = %s", got)
			}
			gone(a, "30", elsewhere)
			for _, name := range b.cacheKeys() {
				if strings.Contains(name, a) && !strings.Contains(name, z) {
					t.Errorf("%s is left of the guild that is gone", name)
				}
			}
			there(z, "10"+z, other)
			forget()
			if got := b.do("GUILD_EMOJIS_UPDATE", `{"guild_id":"`+z+`","emojis":[]}`); got != `[{"id":"1"}]` {
				t.Errorf("emojis of the other guild = %s", got)
			}
		})
	}
}

func TestSync(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	sync := func(payload string) bool {
		c := b.build("GUILD_CREATE", payload)
		b.commit()
		return c.Sync
	}
	b.do("READY", `{"user":{"id":"1","username":"a"},"guilds":[{"id":"10","unavailable":true},{"id":"11","unavailable":true}]}`)
	if !sync(`{"id":"10","name":"announced"}`) {
		t.Error("a guild that READY announced is taken for a join")
	}
	if sync(`{"id":"12","name":"joined"}`) {
		t.Error("a join is taken for a guild that READY announced")
	}
	b.forget() // as a process that takes over in the middle of the flood
	if !sync(`{"id":"11","name":"announced"}`) {
		t.Error("after a takeover a guild that READY announced is taken for a join")
	}
	b.do("GUILD_DELETE", `{"id":"12","unavailable":true}`)
	if !sync(`{"id":"12","unavailable":true}`) {
		t.Error("a bare GUILD_CREATE in an outage is taken for a join")
	}
	if got := b.do("GUILD_UPDATE", `{"id":"12","name":"still"}`); !strings.Contains(got, "joined") {
		t.Errorf("a bare GUILD_CREATE has blanked the guild: %s", got)
	}
	if !sync(`{"id":"12","name":"back"}`) {
		t.Error("the end of an outage is taken for a join")
	}
	if sync(`{"id":"12","name":"again"}`) {
		t.Error("a second GUILD_CREATE is taken for the end of an outage")
	}
	if got := b.do("USER_UPDATE", `{"id":"1","username":"b"}`); got != `{"id":"1","username":"a"}` {
		t.Errorf("the bot's user was %s", got)
	}
}

func TestMessageBounds(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{MessageAge: 2 * time.Second, MessagesPerChannel: 10})
	var ids []string
	for i := range int64(40) {
		// Over two buckets.
		id := snowflake(time.Now().Add(-time.Duration(i%2)*cache.BucketWidth), i)
		ids = append(ids, id)
		b.do("MESSAGE_CREATE", `{"id":"`+id+`","channel_id":"5","guild_id":"1","n":`+fmt.Sprint(i)+`}`)
	}
	held := func() (n int) {
		for _, name := range b.cacheKeys() {
			if strings.HasPrefix(name, "message:") {
				n += int(b.rdb.HLen(t.Context(), b.keys.Cache(name)).Val())
			}
		}
		return n
	}
	if n := held(); n != 40 {
		t.Fatalf("%d messages before Trim, want 40", n)
	}
	if err := b.store.Trim(t.Context(), b.rdb, "not the fence"); err != nil {
		t.Fatal(err)
	}
	if n := held(); n != 40 {
		t.Errorf("%d messages after a Trim under another fence, want 40", n)
	}
	if err := b.rdb.HSet(t.Context(), b.keys.Session(), wire.SessionFence, "f").Err(); err != nil {
		t.Fatal(err)
	}
	b.do("MESSAGE_CREATE", `{"id":"`+snowflake(time.Now(), 99)+`","channel_id":"5","guild_id":"1"}`)
	if err := b.store.Trim(t.Context(), b.rdb, "f"); err != nil {
		t.Fatal(err)
	}
	if n := held(); n != 10 {
		t.Errorf("%d messages after Trim, want the 10 newest", n)
	}
	// Everything runs out by itself, the index too.
	proctest.Eventually(t, "all has run out", func() bool { return len(b.cacheKeys()) == 0 })
	b.now += 60_000
	if got := b.do("MESSAGE_DELETE", `{"id":"`+ids[39]+`","channel_id":"5","guild_id":"1"}`); got != "" {
		t.Errorf("memory knows a message that has run out: %s", got)
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{Off: cache.KindNames()})
	for _, e := range corpus.SessionEnvelopes() {
		if got := b.do(e.Type, string(e.Payload)); got != "" {
			t.Fatalf("%s has a state though nothing is cached: %.100s", e.Type, got)
		}
	}
	for _, name := range b.cacheKeys() {
		if name != "unavailable" {
			t.Errorf("%s was written", name)
		}
	}
}

func TestApplyWithoutPrefetch(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	b.store.Begin(1)
	err := b.store.Apply(change("GUILD_ROLE_UPDATE", []byte(`{"guild_id":"1","role":{"id":"5"}}`)), &b.out)
	if !errors.Is(err, cache.ErrNotRead) || len(b.out) > 0 {
		t.Errorf("Apply = %v with %d commands, want %v and none", err, len(b.out), cache.ErrNotRead)
	}
}

func TestGuildCreateIsAHandfulOfCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type == "GUILD_CREATE" {
			b.build(e.Type, string(e.Payload))
			if n := len(b.out); n > 16 {
				t.Errorf("a GUILD_CREATE of %d bytes takes %d commands", len(e.Payload), n)
			}
			b.commit()
		}
	}
	if diff := cmp.Diff(0, len(b.out)); diff != "" {
		t.Error(diff)
	}
}
