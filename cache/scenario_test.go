package cache_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// A player plays the dispatches of a scenario one by one.
type player struct {
	*bench
	envelopes []corpus.Envelope
	cold      bool // forgets everything before each
}

// next commits the next dispatch, which is of a type, and returns its payload and
// its change.
func (p *player) next(eventType string) (string, *cache.Change) {
	p.t.Helper()
	e := p.envelopes[0]
	p.envelopes = p.envelopes[1:]
	if e.Type != eventType {
		p.t.Fatalf("the scenario goes on with %s, want %s", e.Type, eventType)
	}
	if p.cold {
		p.forget()
	}
	c := p.build(e.Type, string(e.Payload))
	p.commit()
	return string(e.Payload), c
}

// was plays the next dispatch and compares its state.
func (p *player) was(eventType, want string) (payload string) {
	p.t.Helper()
	payload, c := p.next(eventType)
	if diff := cmp.Diff(value(p.t, want), value(p.t, string(c.State))); diff != "" {
		p.t.Errorf("state of %s (-want +got):\n%s", eventType, diff)
	}
	return payload
}

// fields returns a hash of the cache, by field.
func (p *player) fields(key string) map[string]string {
	p.t.Helper()
	return p.rdb.HGetAll(p.t.Context(), p.keys.Cache(key)).Val()
}

// field returns a member of an entity in the cache; nil, if it has none.
func (p *player) field(key, id, member string) any {
	p.t.Helper()
	entity, _ := value(p.t, p.fields(key)[id]).(map[string]any)
	return entity[member]
}

// has reports what of some ids a hash has.
func (p *player) has(key string, want ...string) {
	p.t.Helper()
	got := p.fields(key)
	for _, id := range want {
		if _, ok := got[id]; !ok {
			p.t.Errorf("%s lacks %s", key, id)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		p.t.Errorf("%s has %v besides %v", key, got, want)
	}
}

func (p *player) equal(what string, got, want any) {
	p.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	gid = "900100000000000001"
	uid = "900300000000000001"
	cid = "900200000000000001"
)

// messagesIn returns the key of the messages of the scenarios' channel around one.
func messagesIn(id string) string {
	return "message:" + cid + ":" + strconv.FormatInt(cache.BucketOf(id), 10)
}

// scenarios has for a public report what the cache makes of its payloads.
var scenarios = map[string]func(p *player){
	"073": func(p *player) { // an update that has embeds only
		create := p.was("MESSAGE_CREATE", "")
		p.was("MESSAGE_UPDATE", create)
		id := "900500000000000001"
		p.equal("content", p.field(messagesIn(id), id, "content"), value(p.t, create).(map[string]any)["content"])
		if embeds, _ := p.field(messagesIn(id), id, "embeds").([]any); len(embeds) != 1 {
			p.t.Errorf("embeds = %v, want one", embeds)
		}
	},
	"075": func(p *player) { // suppressed embeds: two updates
		create := p.was("MESSAGE_CREATE", "")
		update, c := p.next("MESSAGE_UPDATE")
		p.equal("state", value(p.t, string(c.State)), value(p.t, create))
		if !strings.Contains(string(c.State), `"edited_timestamp":"2031-04-05T06:10:00+00:00"`) {
			p.t.Errorf("the state of the first update does not show the edit time: %s", c.State)
		}
		flags, _ := value(p.t, update).(map[string]any)["flags"].(float64)
		if int(flags)&4 == 0 {
			p.t.Errorf("flags = %v", flags)
		}
		_, c = p.next("MESSAGE_UPDATE")
		state, _ := value(p.t, string(c.State)).(map[string]any)
		if at, there := state["edited_timestamp"]; at != nil || !there {
			p.t.Errorf("edited_timestamp = %v, %v, want null", at, there)
		}
		p.equal("flags before the second", state["flags"], any(flags))
	},
	"077": func(p *player) { // updates that change nothing
		create := p.was("MESSAGE_CREATE", "")
		p.was("MESSAGE_UPDATE", create)
		p.was("MESSAGE_UPDATE", create)
	},
	"079": func(p *player) { // null and absent
		for _, want := range []bool{true, false} {
			payload, _ := p.next("MESSAGE_CREATE")
			id := value(p.t, payload).(map[string]any)["id"].(string)
			entity := value(p.t, p.fields(messagesIn(id))[id]).(map[string]any)
			if referenced, there := entity["referenced_message"]; referenced != nil || there != want {
				p.t.Errorf("message %s: referenced_message = %v, there: %v, want it null: %v", id, referenced, there, want)
			}
		}
	},
	"081": func(p *player) { // an outage is no removal
		p.was("GUILD_CREATE", "")
		bare := p.fields("guild")[gid]
		children := p.cacheKeys()
		for range 2 {
			p.was("GUILD_DELETE", bare)
			p.has("guild", gid)
			if got := p.cacheKeys(); len(got) != len(children)+1 { // and the guilds in an outage
				p.t.Errorf("in the outage %v are left of %v", got, children)
			}
		}
		_, c := p.next("GUILD_CREATE")
		if !c.Sync {
			p.t.Error("the end of the outage is a join")
		}
		p.was("GUILD_DELETE", p.fields("guild")[gid])
		if left := p.cacheKeys(); len(left) > 0 {
			p.t.Errorf("left of the guild: %v", left)
		}
	},
	"083": func(p *player) { // a GUILD_CREATE of two fields
		p.next("GUILD_CREATE")
		before, children := p.fields("guild"), p.fields("channel:"+gid)
		_, c := p.next("GUILD_CREATE")
		p.equal("guild", p.fields("guild"), before)
		p.equal("channels", p.fields("channel:"+gid), children)
		if !c.Sync {
			p.t.Error("it is a join")
		}
	},
	"085": func(p *player) { // children that vanished while away
		p.next("GUILD_CREATE")
		before := p.cacheKeys()
		for len(p.envelopes) > 0 {
			p.next(p.envelopes[0].Type)
		}
		p.has("channel:"+gid, cid)
		p.has("voice_state:" + gid)
		p.equal("emojis", value(p.t, p.fields("emojis")[gid]), value(p.t, `[]`))
		if _, is := p.fields("role:" + gid)["900400000000000001"]; is || len(before) == 0 {
			p.t.Error("the role is still there")
		}
	},
	"087": neighbour,
	"089": func(p *player) { // a member that was not known
		p.next("GUILD_CREATE")
		p.was("GUILD_MEMBER_UPDATE", "")
		p.was("GUILD_MEMBER_UPDATE", "")
		p.has("member:900100000000000002", "900300000000000002")
		c := p.build("GUILD_MEMBER_REMOVE", `{"guild_id":"`+gid+`","user":{"id":"900300000000000002"}}`)
		if !c.Partial || len(c.State) == 0 {
			p.t.Errorf("state of what an update brought alone = %s, Partial %v", c.State, c.Partial)
		}
	},
	"091": func(p *player) { // a presence with the user's id only
		p.next("GUILD_CREATE")
		before := p.fields("member:" + gid)[uid]
		p.was("PRESENCE_UPDATE", "")
		p.equal("member", p.fields("member:" + gid)[uid], before)
		p.has("presence:"+gid, uid)
		p.was("GUILD_MEMBER_UPDATE", before)
	},
	"093": func(p *player) { // a member added three times
		p.next("GUILD_CREATE")
		first := p.was("GUILD_MEMBER_ADD", "")
		second := p.was("GUILD_MEMBER_ADD", first)
		p.was("GUILD_MEMBER_ADD", second)
		p.equal("member_count", p.fields("guild")[gid+":member_count"], "3")
	},
	"095": func(p *player) { // a webhook is no user
		for len(p.envelopes) > 0 {
			p.next("MESSAGE_CREATE")
		}
		names := map[any]bool{}
		for id, text := range p.fields(messagesIn("900500000000000001")) {
			author := value(p.t, text).(map[string]any)["author"].(map[string]any)
			if names[author["username"]] {
				p.t.Errorf("message %s has the author of another: %v", id, author)
			}
			names[author["username"]] = true
		}
		p.has("member:" + gid)
		p.has("user")
		if len(names) != 2 {
			p.t.Errorf("authors = %v, want two", names)
		}
	},
	"097": func(p *player) { // no member_count
		p.next("GUILD_CREATE")
		p.next("GUILD_MEMBER_ADD")
		p.next("GUILD_MEMBER_REMOVE")
		p.was("GUILD_MEMBER_REMOVE", "")
		p.has("guild", gid)
	},
	"099": func(p *player) { // threads that a sync leaves out
		const t1, t2, t3 = "900210000000000001", "900210000000000002", "900210000000000003"
		p.next("GUILD_CREATE")
		all := p.fields("thread:" + gid)
		p.was("THREAD_LIST_SYNC", "["+all[t2]+"]")
		p.has("thread:"+gid, t1, t3)
		p.was("THREAD_LIST_SYNC", "["+all[t1]+","+all[t3]+"]")
		p.has("thread:" + gid)
	},
	"101": func(p *player) { // the list of emojis is the whole list
		p.next("GUILD_CREATE")
		before := p.fields("emojis")[gid]
		if list, _ := value(p.t, before).([]any); len(list) != 2 {
			p.t.Errorf("emojis at first = %s", before)
		}
		p.was("GUILD_EMOJIS_UPDATE", before)
		before = p.fields("emojis")[gid]
		p.was("GUILD_EMOJIS_UPDATE", before)
		p.equal("emojis", p.fields("emojis")[gid], "[]")
	},
	"103": func(p *player) { // an archived thread stays known
		create := p.was("THREAD_CREATE", "")
		p.was("THREAD_UPDATE", create)
		_, c := p.next("THREAD_UPDATE")
		if !strings.Contains(string(c.State), `"archived":true`) {
			p.t.Errorf("state of the thread in the archive = %s", c.State)
		}
		_, c = p.next("THREAD_DELETE")
		if !strings.Contains(string(c.State), `"name":"tide-log"`) {
			p.t.Errorf("state of the deleted thread = %s", c.State)
		}
		p.has("thread:" + gid)
	},
	"105": func(p *player) { // a deleted role is still named
		p.next("GUILD_CREATE")
		role, member := p.fields("role:" + gid)["900400000000000001"], p.fields("member:" + gid)[uid]
		p.was("GUILD_ROLE_DELETE", role)
		p.next("CHANNEL_UPDATE")
		p.was("GUILD_MEMBER_UPDATE", member)
		p.has("role:"+gid, gid)
	},
	"107": func(p *player) { // children do not name their guild: their key does
		p.next("GUILD_CREATE")
		channel := p.fields("channel:" + gid)["900200000000000002"]
		p.was("CHANNEL_DELETE", channel)
		p.has("channel:"+gid, cid, "900200000000000009")
	},
	"109": func(p *player) { // left the guild out of a voice channel
		p.next("GUILD_CREATE")
		state := p.was("VOICE_STATE_UPDATE", "")
		p.next("GUILD_MEMBER_REMOVE")
		if _, ghost := p.fields("voice_state:" + gid)[uid]; ghost {
			p.t.Error("the voice state of a member who left is still there")
		}
		p.was("VOICE_STATE_UPDATE", state)
		p.has("voice_state:" + gid)
	},
	"115": func(p *player) { // emojis without an id
		p.do("MESSAGE_CREATE", `{"id":"900500000000000001","channel_id":"`+cid+`","guild_id":"`+gid+`"}`)
		p.next("MESSAGE_REACTION_ADD")
		p.next("MESSAGE_REACTION_ADD")
		list, _ := value(p.t, p.fields(messagesIn("900500000000000001"))["900500000000000001:reactions"]).([]any)
		if len(list) != 2 {
			p.t.Errorf("reactions = %v, want two", list)
		}
	},
	"117": func(p *player) { // channels of unknown types
		p.next("GUILD_CREATE")
		types := map[string]bool{}
		for id := range p.fields("channel:" + gid) {
			types[fmt.Sprint(p.field("channel:"+gid, id, "type"))] = true
		}
		for _, want := range []string{"0", "5", "13", "15", "16", "42"} {
			if !types[want] {
				p.t.Errorf("no channel of type %s: %v", want, types)
			}
		}
	},
	"119": func(p *player) { // stages under the names that Discord sends
		create := p.was("STAGE_INSTANCE_CREATE", "")
		update := p.was("STAGE_INSTANCE_UPDATE", create)
		p.was("STAGE_INSTANCE_DELETE", update)
	},
	"121": func(p *player) { // negative positions
		p.next("GUILD_CREATE")
		p.equal("position", p.field("role:"+gid, gid, "position"), any(-1.0))
	},
	"125": func(p *player) { // tags with numbers for ids
		create := p.was("CHANNEL_CREATE", "")
		p.was("CHANNEL_UPDATE", create)
		p.has("channel:"+gid, "900200000000000003")
	},
	"131": func(p *player) { // ids that are no snowflakes
		ids := []string{"18446744073709551615", "-5", "000900500000000000001", "not-a-number"}
		for _, id := range ids {
			p.do("MESSAGE_CREATE", `{"id":"`+id+`","channel_id":"`+cid+`","guild_id":"`+gid+`","content":"`+id+`"}`)
		}
		for _, id := range ids {
			p.was("MESSAGE_DELETE", `{"id":"`+id+`","channel_id":"`+cid+`","guild_id":"`+gid+`","content":"`+id+`"}`)
		}
		p.was("MESSAGE_DELETE", "")
	},
	"133": func(p *player) { // a timeout set and cleared
		p.next("GUILD_CREATE")
		const at = "communication_disabled_until"
		for _, want := range []any{"2031-04-06T00:00:00+00:00", "2031-04-06T00:00:00+00:00", nil} {
			before := p.fields("member:" + gid)[uid]
			p.was("GUILD_MEMBER_UPDATE", before)
			p.equal(at, p.field("member:"+gid, uid, at), want)
		}
	},
	"135": func(p *player) { // null means true
		p.next("GUILD_ROLE_CREATE")
		p.next("GUILD_ROLE_CREATE")
		p.equal("tags", p.field("role:"+gid, "900400000000000002", "tags"), any(map[string]any{"bot_id": "900300000000000099"}))
		_, c := p.next("GUILD_ROLE_UPDATE")
		p.equal("tags before", value(p.t, string(c.State)).(map[string]any)["tags"], any(map[string]any{"premium_subscriber": nil}))
	},
	"139": func(p *player) { // lone surrogates stay the bytes they were
		payload, _ := p.next("MESSAGE_CREATE")
		id := "900500000000000001"
		p.equal("stored", p.fields(messagesIn(id))[id], payload)
		if got := p.do("MESSAGE_DELETE", `{"id":"`+id+`","channel_id":"`+cid+`","guild_id":"`+gid+`"}`); got != payload {
			p.t.Errorf("state = %q, want %q", got, payload)
		}
	},
	"141": func(p *player) { // control characters
		payload, _ := p.next("GUILD_ROLE_CREATE")
		if !strings.Contains(payload, p.fields("role:" + gid)["900400000000000001"]) {
			p.t.Error("the role is not stored as it came")
		}
		p.next("MESSAGE_CREATE")
	},
	"143": func(p *player) { // the last of several ids counts
		p.do("MESSAGE_CREATE", `{"id":"900500000000000003","channel_id":"`+cid+`","guild_id":"`+gid+`"}`)
		p.was("MESSAGE_DELETE", `{"id":"900500000000000003","channel_id":"`+cid+`","guild_id":"`+gid+`"}`)
	},
	"155": func(p *player) { // what was before is not what is now
		p.next("GUILD_CREATE")
		for len(p.envelopes) > 0 {
			payload, c := p.next(p.envelopes[0].Type)
			if cmp.Equal(value(p.t, string(c.State)), value(p.t, payload)) {
				p.t.Errorf("before is after: %s", c.State)
			}
		}
	},
	"157": func(p *player) { // updates lack what only a snapshot has
		p.next("GUILD_CREATE")
		channels := p.fields("channel:" + gid)
		for len(p.envelopes) > 0 {
			before := p.fields("guild")[gid]
			if payload, c := p.next(p.envelopes[0].Type); strings.HasPrefix(payload, `{"id":"`+gid) {
				p.equal("state", value(p.t, string(c.State)), value(p.t, before))
			}
		}
		p.equal("channels", p.fields("channel:"+gid), channels)
		for _, name := range []string{"joined_at", "member_count"} {
			if p.field("guild", gid, name) == nil {
				p.t.Errorf("%s is gone", name)
			}
		}
	},
	"161": func(p *player) { // the bot's own user
		ready, _ := p.next("READY")
		user := value(p.t, ready).(map[string]any)["user"]
		payload, c := p.next("USER_UPDATE")
		p.equal("state", value(p.t, string(c.State)), user)
		p.equal("name", p.field("user", "@me", "username"), value(p.t, payload).(map[string]any)["username"])
		for len(p.envelopes) > 0 {
			p.next(p.envelopes[0].Type)
		}
	},
	"167": func(p *player) { // an empty list is not none
		p.next("GUILD_CREATE")
		p.next("GUILD_MEMBER_UPDATE")
		p.equal("roles", p.field("member:"+gid, uid, "roles"), any([]any{}))
		_, c := p.next("GUILD_MEMBER_UPDATE")
		if !strings.Contains(string(c.State), `"roles":[]`) {
			p.t.Errorf("state = %s", c.State)
		}
	},
}

// neighbour removes a guild beside another whose id begins alike.
func neighbour(p *player) {
	for p.envelopes[0].Type != "GUILD_DELETE" {
		p.next(p.envelopes[0].Type)
	}
	const removed, other = "90010000000000001", "900100000000000012"
	want := make(map[string]string)
	for _, key := range p.cacheKeys() {
		if strings.Contains(key, other) {
			want[key] = p.rdb.Dump(p.t.Context(), p.keys.Cache(key)).Val()
		}
	}
	guild := p.fields("guild")
	p.was("GUILD_DELETE", guild[removed])
	if len(want) < 3 {
		p.t.Errorf("the other guild has only %d keys", len(want))
	}
	for key, dump := range want {
		if p.rdb.Dump(p.t.Context(), p.keys.Cache(key)).Val() != dump {
			p.t.Errorf("%s of the other guild has changed", key)
		}
	}
	delete(guild, removed)
	p.equal("guilds", p.fields("guild"), guild)
	for len(p.envelopes) > 0 {
		if _, c := p.next(p.envelopes[0].Type); len(c.State) == 0 {
			p.t.Errorf("nothing is known of the other guild's before %s", c.State)
		}
	}
}

// TestScenarios plays every payload that has broken software before, and looks at
// what the cache makes of it. Each case is named after the public report.
func TestScenarios(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, s := range corpus.Scenarios() {
		known[s.Number()] = true
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cold %v", s.Name, cold), func(t *testing.T) {
				t.Parallel()
				p := &player{bench: newBench(t, cache.Config{}), envelopes: s.Envelopes, cold: cold}
				if check := scenarios[s.Number()]; check != nil {
					check(p)
					return
				}
				for _, e := range s.Envelopes {
					if e.Type != "" {
						p.do(e.Type, string(e.Payload))
					}
				}
			})
		}
	}
	for number := range scenarios {
		if !known[number] {
			t.Errorf("scenario %s is not in the corpus", number)
		}
	}
}

// TestScenario087PrefixWithGlobCharacters removes a guild under a prefix that means
// something else to a pattern.
func TestScenario087PrefixWithGlobCharacters(t *testing.T) {
	t.Parallel()
	for _, s := range corpus.Scenarios() {
		if s.Number() == "087" {
			rdb, prefix := redistest.Client(t), redistest.Prefix(t)+"b[o]t*:"
			b := &bench{t: t, rdb: rdb, keys: wire.NewShard(prefix, 0, 1), store: newStore(t, rdb, prefix, cache.Config{}), now: time.Now().UnixMilli()}
			neighbour(&player{bench: b, envelopes: s.Envelopes})
		}
	}
}

// TestScenario109NoGhost has a member leave the guild out of a voice channel, and
// nothing said of the voice state.
func TestScenario109NoGhost(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{})
	b.do("VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`)
	b.do("GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"5"}}`)
	b.rdb.HSet(t.Context(), b.keys.Session(), wire.SessionFence, "f")
	if err := b.store.Trim(t.Context(), b.rdb, "f"); err != nil {
		t.Fatal(err)
	}
	b.holds(hashes{"voice_state:1": {"5:left": `{"guild_id":"1","user_id":"5","channel_id":"8"}`}})
	b.store.LeftLong()
	if err := b.store.Trim(t.Context(), b.rdb, "f"); err != nil {
		t.Fatal(err)
	}
	b.holds(hashes{"voice_state:1": nil})
}

// TestScenario159MessageCacheUnbounded fills many channels and finds nothing left.
func TestScenario159MessageCacheUnbounded(t *testing.T) {
	t.Parallel()
	const channels, perChannel, bound = 100, 300, 20
	b := newBench(t, cache.Config{MessageAge: time.Second, MessagesPerChannel: bound})
	b.rdb.HSet(t.Context(), b.keys.Session(), wire.SessionFence, "f")
	var steps []step
	for i := range int64(channels * perChannel) {
		id, channel := snowflake(time.Now(), i), strconv.FormatInt(i%channels, 10)
		at := `"channel_id":"` + channel + `","guild_id":"1"`
		steps = append(steps, step{"MESSAGE_CREATE", `{"id":"` + id + `",` + at + `}`})
		if i%3 == 0 {
			steps = append(steps, step{"MESSAGE_REACTION_ADD", `{"user_id":"5","message_id":"` + id + `",` + at + `,"emoji":{"name":"x"}}`})
		}
		if len(steps) > 1000 {
			b.batch(steps)
			b.commit()
			steps = steps[:0]
		}
	}
	b.batch(steps)
	b.commit()
	if err := b.store.Trim(t.Context(), b.rdb, "f"); err != nil {
		t.Fatal(err)
	}
	over := 0
	for _, key := range b.cacheKeys() {
		if !strings.HasPrefix(key, "message:") {
			continue
		}
		messages, beside := 0, 0
		for _, field := range b.rdb.HKeys(t.Context(), b.keys.Cache(key)).Val() {
			if strings.Contains(field, ":") {
				beside++
			} else {
				messages++
			}
		}
		if messages > bound || beside > messages {
			over++
			t.Errorf("%s has %d messages and %d values beside them, want at most %d", key, messages, beside, bound)
		}
	}
	proctest.Eventually(t, "all has run out", func() bool { return len(b.cacheKeys()) == 0 })
}
