package dispatch_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

func TestEveryFieldHasItsName(t *testing.T) {
	t.Parallel()
	names := dispatch.Names()
	if len(names) != dispatch.NumFields-1 {
		t.Errorf("%d names for %d fields", len(names), dispatch.NumFields-1)
	}
	for field, name := range names {
		for _, spelt := range []string{name, strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], `\u00` + hex(name[0]) + name[1:]} {
			if got := dispatch.FieldOf(spelt); got != field {
				t.Errorf("FieldOf(%q) = %d, want %d", spelt, got, field)
			}
		}
		if got := dispatch.FieldOf(name + "x"); got != dispatch.NoField {
			t.Errorf("FieldOf(%q) = %d, want none", name+"x", got)
		}
	}
	for _, other := range []string{"", "content", "Content", `\u0063ontent`, "gr\u00f6sse"} {
		if got := dispatch.FieldOf(other); got != dispatch.NoField {
			t.Errorf("FieldOf(%q) = %d, want none", other, got)
		}
	}
}

func hex(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

func TestScan(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, payload string
		want          map[dispatch.Field]string // ids
		object, bad   bool
	}{
		{"ids", `{"id":"1","guild_id":"2","channel_id":3,"user":{"name":"x","id":"4"},"role":{"id":5}}`, map[dispatch.Field]string{
			dispatch.ID: "1", dispatch.GuildID: "2", dispatch.ChannelID: "3", dispatch.UserObject: "4", dispatch.RoleObject: "5"}, true, false},
		{"not ids", `{"id":null,"guild_id":"","channel_id":1.5,"user_id":{},"user":null,"role":[]}`, nil, true, false},
		{"the last wins", `{"id":"1","ID":"2","i\u0064":"3"}`, map[dispatch.Field]string{dispatch.ID: "3"}, true, false},
		{"nested ones do not count", `{"a":{"id":"1"},"b":[{"guild_id":"2"}]}`, nil, true, false},
		{"what breaks off", `{"id":"1","guild_id":`, map[dispatch.Field]string{dispatch.ID: "1"}, false, true},
		{"null", `null`, nil, false, false},
		{"an array", `[{"id":"1"}]`, nil, false, false},
		{"nothing", ``, nil, false, false},
	}
	var f dispatch.Fields
	for _, test := range tests {
		err := f.Scan([]byte(test.payload))
		if (err != nil) != test.bad || (test.bad && !errors.Is(err, rawjson.ErrSyntax)) {
			t.Errorf("%s: error %v, want one: %v", test.name, err, test.bad)
		}
		if f.Object != test.object {
			t.Errorf("%s: Object = %v, want %v", test.name, f.Object, test.object)
		}
		for field := range dispatch.NumFields {
			if got := string(f.ID(dispatch.Field(field))); got != test.want[dispatch.Field(field)] {
				t.Errorf("%s: field %d is %q, want %q", test.name, field, got, test.want[dispatch.Field(field)])
			}
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	tests := []struct{ eventType, payload, key, guild string }{
		{"MESSAGE_CREATE", `{"id":"1","guild_id":"2","channel_id":"3"}`, "2", "2"},
		{"MESSAGE_CREATE", `{"id":"1","channel_id":"3"}`, "3", ""},
		{"GUILD_CREATE", `{"id":"1"}`, "1", "1"},
		{"GUILD_UPDATE", `{"id":"1"}`, "1", "1"},
		{"GUILD_DELETE", `{"id":"1","guild_id":"9"}`, "1", "1"},
		{"CHANNEL_CREATE", `{"id":"1","guild_id":"2"}`, "2", "2"},
		{"CHANNEL_CREATE", `{"id":"1"}`, "1", ""},
		{"THREAD_UPDATE", `{"id":"1"}`, "1", ""},
		{"GUILD_MEMBER_ADD", `{"guild_id":"2","user":{"id":"4"}}`, "2", "2"},
		{"USER_UPDATE", `{"id":"4"}`, "4", ""},
		{"TYPING_START", `{"channel_id":"3","user_id":"4"}`, "3", ""},
		{"ENTITLEMENT_CREATE", `{"id":"1","user_id":"4"}`, "4", ""},
		{"PRESENCE_UPDATE", `{"user":{"id":"4"}}`, "4", ""},
		{"RESUMED", `{}`, "", ""},
		{"RESUMED", `null`, "", ""},
		{"LANTERN_NUMBERS", `{"id":"1","guild_id":"2"}`, "2", "2"},
		{"LANTERN_NUMBERS", `{"id":"1"}`, "", ""},
	}
	var f dispatch.Fields
	for _, test := range tests {
		if err := f.Scan([]byte(test.payload)); err != nil {
			t.Fatal(err)
		}
		key, guild := dispatch.Lookup(test.eventType).Key(&f)
		if string(key) != test.key || string(guild) != test.guild {
			t.Errorf("%s %s: key %q, guild %q, want %q, %q", test.eventType, test.payload, key, guild, test.key, test.guild)
		}
	}
}

func TestRecordedGuildDispatchesHaveTheirGuildAsKey(t *testing.T) {
	t.Parallel()
	none := map[string]bool{ // belong to no guild, or are the application's
		"READY": true, "RESUMED": true, "USER_UPDATE": true,
		"ENTITLEMENT_CREATE": true, "ENTITLEMENT_UPDATE": true, "ENTITLEMENT_DELETE": true,
		"SUBSCRIPTION_CREATE": true, "SUBSCRIPTION_UPDATE": true, "SUBSCRIPTION_DELETE": true,
		"RATE_LIMITED": true,
	}
	var f dispatch.Fields
	for _, e := range corpus.Dispatches() {
		if err := f.Scan(e.Payload); err != nil {
			t.Fatal(err)
		}
		if key, guild := dispatch.Lookup(e.Type).Key(&f); (len(guild) == 0) && !none[e.Type] {
			t.Errorf("%s: key %q, no guild", e.Type, key)
		}
	}
}

func TestScanDoesNotAllocate(t *testing.T) {
	payload := corpus.Dispatch("MESSAGE_CREATE").Payload
	var f dispatch.Fields
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Scan(payload); err != nil {
			t.Error(err)
		}
		dispatch.Lookup("MESSAGE_CREATE").Key(&f)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzScan(f *testing.F) {
	for _, e := range corpus.Dispatches() {
		if len(e.Payload) < 4096 {
			f.Add([]byte(e.Payload))
		}
	}
	for _, s := range corpus.Scenarios() {
		for _, e := range s.Envelopes {
			f.Add(e.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var fields dispatch.Fields
		err := fields.Scan(payload)
		for _, e := range []dispatch.Field{dispatch.ID, dispatch.UserObject} {
			fields.ID(e)
		}
		// What a typed listener would see is what was scanned.
		var want struct {
			GuildID  json.RawMessage `json:"guild_id"`
			Stickers json.RawMessage `json:"stickers"`
			User     json.RawMessage `json:"user"`
		}
		if json.Unmarshal(payload, &want) != nil || !rawjson.IsObject(payload) {
			return
		}
		if err != nil || !fields.Object {
			t.Fatalf("%q: error %v, Object %v", payload, err, fields.Object)
		}
		for field, value := range map[dispatch.Field]json.RawMessage{dispatch.GuildID: want.GuildID, dispatch.StickerList: want.Stickers, dispatch.UserObject: want.User} {
			if got := fields.Raw(field); string(got) != string(value) {
				t.Errorf("%q: field %d is %s, want %s", payload, field, got, value)
			}
		}
	})
}

// sized returns the payload of a type in the recorded session that is closest to
// so many bytes.
func sized(eventType string, bytes int) []byte {
	var best []byte
	far := func(p []byte) int { return max(len(p)-bytes, bytes-len(p)) }
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type == eventType && (best == nil || far(e.Payload) < far(best)) {
			best = e.Payload
		}
	}
	return best
}

func BenchmarkScan(b *testing.B) {
	for _, bench := range []struct {
		name, eventType string
		bytes           int
	}{
		{"MESSAGE_CREATE", "MESSAGE_CREATE", 1200},
		{"PRESENCE_UPDATE", "PRESENCE_UPDATE", 500},
		{"GUILD_CREATE", "GUILD_CREATE", 200 << 10},
	} {
		payload := sized(bench.eventType, bench.bytes)
		b.Run(bench.name, func(b *testing.B) {
			var f dispatch.Fields
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if err := f.Scan(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
