package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
)

// TestRights has a gateway, workers and the tool get by with the rights that
// docs/operating.md gives them.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile(`(?m)^ACL SETUSER (\w+) .*$`).FindAllStringSubmatch(string(page), -1)
	if len(users) != 3 {
		t.Fatalf("docs/operating.md has %d users, want a gateway, a worker and an operator", len(users))
	}
	server := redistest.Start(t)
	d := deploy(t, gatewaytest.Config{})
	d.rdb, d.prefix = server.Client(t), "sluice"
	api, redisAs := d.flags[0], make(map[string]string)
	as := make(map[string][]string)
	for _, user := range users {
		var words []any
		for _, word := range strings.Fields(strings.Replace(user[0], "PASSWORD", "secret", 1)) {
			words = append(words, word)
		}
		if err := d.rdb.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
		redisAs[user[1]] = "--redis.url=redis://" + user[1] + ":secret@" + server.Addr() + "/0"
		as[user[1]] = []string{api, redisAs[user[1]]}
	}
	start := func(name string, flags []string) *program {
		d.flags = flags
		return d.run(t, name, "ORDERS_ADDR=127.0.0.1:0")
	}

	first := start("gateway", as["gateway"])
	d.connected(t)
	editlog := start("editlog", append(as["worker"], "--replay.group=edits"))
	welcome := start("welcome", append(as["worker"], "--replay.group=welcome"))
	d.send(t, "GUILD_CREATE", guildCreate(guild, "Tea House"))
	d.send(t, "MESSAGE_CREATE", about(author+`,"content":"Helo"`))
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"Hello"`))
	d.send(t, "GUILD_MEMBER_ADD", `{"guild_id":"`+guild+`","user":{"id":"7","username":"mira"},"roles":[]}`)
	editlog.Prints(t, `"Helo" became "Hello"`)
	welcome.Prints(t, "welcome to Tea House, mira")
	first.StopsCleanly(t)
	second := start("gateway", as["gateway"])
	proctest.Eventually(t, "the second gateway has resumed", func() bool { return len(d.discord.Resumes()) > 0 })
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"Hello!"`))
	d.send(t, "MESSAGE_UPDATE", about(`,"content":5`)) // which no listener can take
	d.send(t, "GUILD_DELETE", `{"id":"`+guild+`"}`)
	editlog.Prints(t, `"Hello" became "Hello!"`)
	proctest.Eventually(t, "there is a dead letter", func() bool { return d.rdb.XLen(t.Context(), "{sluice:0/1}:dead:edits").Val() == 1 })
	for _, test := range []struct{ args, want string }{
		{"status", "edits"},
		{"dead ls --replay.group=edits", "edit-log"},
		{"dead retry --all --replay.group=edits", "1"},
		{"tail", "GUILD_MEMBER_ADD"},
	} {
		p := start("sluice", append(strings.Fields(test.args), redisAs["operator"]))
		p.Ends(t, 0)
		if out := p.Output.String(); !strings.Contains(out, test.want) {
			t.Errorf("sluice %s does not speak of %s:\n%s", test.args, test.want, out)
		}
	}
	for _, p := range []*program{editlog, welcome, second} {
		p.StopsCleanly(t)
		if strings.Contains(p.stderr.String(), "NOPERM") {
			t.Errorf("%s:\n%s", p.Cmd.Path, p.stderr.String())
		}
	}
	denied, err := d.rdb.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(denied) > 0 {
		t.Errorf("denied: %v, %v", denied, err)
	}
}
