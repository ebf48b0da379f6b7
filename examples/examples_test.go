// Package examples_test runs the examples: the very programs, against a real
// Redis, a Discord in the process and the gateway's binary.
package examples_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
)

// examples has every one, by the name of its directory.
var examples = map[string]func(t *testing.T){
	"analytics":  analytics,
	"bot":        bot,
	"discordbot": discordbot,
	"editlog":    editlog,
	"orders":     orders,
	"welcome":    welcome,
	"whoami":     whoami,
}

func TestExamples(t *testing.T) {
	t.Parallel()
	for name, test := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// TestEachIsShort also finds an example that is not run.
func TestEachIsShort(t *testing.T) {
	t.Parallel()
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if !dir.IsDir() {
			continue
		}
		name := dir.Name()
		if examples[name] == nil {
			t.Errorf("%s is not run by a test", name)
		}
		source, err := os.ReadFile(name + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte("\n")); n > 80 {
			t.Errorf("%s/main.go has %d lines, want at most 80", name, n)
		}
		comment, _, _ := strings.Cut(string(source), "\npackage main")
		if !strings.HasPrefix(strings.ToLower(comment), "// "+name+" ") || !strings.Contains(comment, "go run ./examples/"+name) {
			t.Errorf("%s/main.go begins with %q, want its idea and the command that runs it", name, comment)
		}
	}
}

const (
	guild   = "1100000000000000001"
	channel = "1100000000000000002"
	message = "1100000000000000003"
)

func about(more string) string {
	return `{"id":"` + message + `","channel_id":"` + channel + `","guild_id":"` + guild + `"` + more + `}`
}

const author = `,"author":{"id":"7","username":"mira"}`

// guildCreate is a guild with one channel.
func guildCreate(id, name string) string {
	return `{"id":"` + id + `","name":"` + name + `","channels":[{"id":"` + channel + `","type":0,"name":"general"}],` +
		`"members":[],"roles":[],"threads":[],"voice_states":[],"presences":[],"emojis":[],"stickers":[],"unavailable":false}`
}

func editlog(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	d.gateway(t)
	p := d.run(t, "editlog")
	d.send(t, "GUILD_CREATE", guildCreate(guild, "Tea House"))
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"Helo"`))
	d.send(t, "MESSAGE_UPDATE", about(`,"embeds":[]`)) // a preview was added
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"Hello"`))
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"Hello!"`))
	p.Prints(t, `"Helo" became "Hello"`, `"Hello" became "Hello!"`)
	p.StopsCleanly(t)
	if got := p.Output.String(); strings.Count(got, "became") != 2 {
		t.Errorf("it printed more than the two edits:\n%s", got)
	}
}

func welcome(t *testing.T) {
	d := deploy(t, gatewaytest.Config{Ready: func(int, int) json.RawMessage {
		return json.RawMessage(`{"v":10,"user":{"id":"` + self + `","username":"bot"},"guilds":[{"id":"` + guild + `","unavailable":true}],"application":{"id":"` + self + `"}}`)
	}})
	d.gateway(t)
	p := d.run(t, "welcome")
	d.send(t, "GUILD_CREATE", guildCreate(guild, "Tea House")) // READY has announced it
	d.send(t, "GUILD_MEMBER_ADD", `{"guild_id":"`+guild+`","user":{"id":"7","username":"mira"},"roles":[],"joined_at":"2025-01-01T00:00:00Z"}`)
	d.send(t, "GUILD_CREATE", guildCreate("1100000000000000009", "Bike Shed"))
	p.Prints(t, "welcome to Tea House, mira", "hello Bike Shed, thank you for having me")
	p.StopsCleanly(t)
	if got := p.Output.String(); strings.Contains(got, "hello Tea House") {
		t.Errorf("it greeted a guild that it was in before:\n%s", got)
	}
}

func discordbot(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	d.gateway(t)
	p := d.run(t, "discordbot")
	at := `"guild_id":"` + guild + `","channel_id":"` + channel + `"`
	d.send(t, "GUILD_CREATE", guildCreate(guild, "Tea House"))
	d.send(t, "MESSAGE_CREATE", `{"id":"1100000000000000008",`+at+`,"author":{"id":"`+self+`","username":"bot"},"content":"!hello myself"}`)
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"!hello"`))
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"!hello there"`))
	d.send(t, "MESSAGE_DELETE", about(""))
	d.send(t, "GUILD_MEMBER_ADD", `{"guild_id":"`+guild+`","user":{"id":"7","username":"mira"},"roles":[]}`)
	d.send(t, "GUILD_MEMBER_REMOVE", `{"guild_id":"`+guild+`","user":{"id":"7","username":"mira"}}`)
	d.send(t, "MESSAGE_REACTION_ADD", `{`+at+`,"message_id":"`+message+`","user_id":"7","emoji":{"id":null,"name":"tea"}}`)
	d.send(t, "VOICE_STATE_UPDATE", `{"guild_id":"`+guild+`","channel_id":"5","user_id":"7","session_id":"s"}`)
	d.send(t, "VOICE_STATE_UPDATE", `{"guild_id":"`+guild+`","channel_id":"6","user_id":"7","session_id":"s"}`)
	d.send(t, "INTERACTION_CREATE", `{"id":"42","application_id":"`+self+`","type":2,"token":"secret",`+at+`,"version":1,"data":{"id":"1","name":"tea","type":1}}`)
	p.Prints(t, "ready as bot", "guild Tea House with 1 channels", "hello mira", `edited "!hello" to "!hello there"`, `deleted "!hello there"`,
		"joined mira", "left mira", "reaction tea", "voice 5 to 6", "command tea answered: true")
	p.StopsCleanly(t)
	if got := p.Output.String(); strings.Contains(got, "hello bot") {
		t.Errorf("it answered itself: State.User was not set:\n%s", got)
	}
	if got := d.calls.String(); !strings.HasPrefix(got, "/interactions/42/secret/callback") || !strings.Contains(got, "at your service") {
		t.Errorf("the API was called with %q", got)
	}
}

func analytics(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	d.gateway(t)
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"one"`))
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"two"`))
	d.send(t, "MESSAGE_DELETE", about(""))
	proctest.Eventually(t, "READY and the messages are in the streams", func() bool { return d.entries(t) == 4 })
	p := d.run(t, "analytics") // begins with what is there
	all := "map[message_create:2 message_delete:1]"
	proctest.Eventually(t, "it has counted them", func() bool { return strings.Contains(p.Output.String(), "now "+all) })
	p.StopsCleanly(t)
	p.Prints(t, "in all "+all)
	var groups []string
	keys, err := d.rdb.Keys(t.Context(), "{"+d.prefix+":*}:stream:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("streams: %q, %v", keys, err)
	}
	for _, key := range keys {
		for _, g := range d.rdb.XInfoGroups(t.Context(), key).Val() {
			groups = append(groups, g.Name)
			if g.Pending != 0 || g.Lag != 0 {
				t.Errorf("%s: %d entries are pending, %d not read", key, g.Pending, g.Lag)
			}
		}
	}
	slices.Sort(groups)
	if groups = slices.Compact(groups); len(groups) != 1 || groups[0] != "analytics" {
		t.Errorf("groups %q, want analytics alone: it would take the bot's entries from it", groups)
	}
}

func orders(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	d.gateway(t)
	p := d.run(t, "orders", "ORDERS_ADDR=127.0.0.1:0")
	var shop []string
	proctest.Eventually(t, "the shop is open", func() bool {
		shop = regexp.MustCompile(`taking orders at (\S+)`).FindStringSubmatch(p.Output.String())
		return shop != nil
	})
	response, err := http.PostForm(shop[1], url.Values{"guild": {guild}, "item": {"soup"}})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("an order: %s", response.Status)
	}
	p.Prints(t, "cooking soup for guild "+guild)
	p.StopsCleanly(t)
}

func bot(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	p := d.run(t, "bot")
	d.connected(t)
	p.Prints(t, "online as bot in 0 guilds")
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"!ping"`))
	proctest.Eventually(t, "it answers", func() bool { return d.calls.String() != "" })
	p.StopsCleanly(t)
	if got := d.calls.String(); !strings.HasPrefix(got, "/channels/"+channel+"/messages") || !strings.Contains(got, "pong") {
		t.Errorf("the API was called with %q", got)
	}
	if closes := d.discord.Closes(); len(closes) != 1 || closes[0].Code != 4000 {
		t.Errorf("connections closed: %+v, want one with 4000, which leaves the session resumable", closes)
	}
}

func whoami(t *testing.T) {
	d := deploy(t, gatewaytest.Config{})
	d.gateway(t)
	p := d.run(t, "whoami")
	d.send(t, "GUILD_CREATE", `{"id":"`+guild+`","name":"Tea House","owner_id":"1","channels":[{"id":"`+channel+`","type":0,"name":"general"}],"unavailable":false,`+
		`"roles":[{"id":"`+guild+`","name":"@everyone","permissions":"3072"},{"id":"21","name":"Brewer","position":1,"permissions":"0"},{"id":"22","name":"Keeper","position":2,"permissions":"8192"}],`+
		`"members":[{"user":{"id":"7","username":"mira"},"roles":["21","22"]},{"user":{"id":"8","username":"tom"},"roles":["21"]}],"threads":[],"voice_states":[],"presences":[],"emojis":[],"stickers":[]}`)
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"!whoami"`))
	d.send(t, "MESSAGE_CREATE", about(`,"author":{"id":"8","username":"tom"},"content":"!whoami"`))
	p.Prints(t, "mira in #general of Tea House, Keeper, Brewer, who may delete this", "tom in #general of Tea House, Brewer")
	p.StopsCleanly(t)
}
