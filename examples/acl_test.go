package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/redistest"
)

// TestRights has a gateway and workers get by with the rights that
// docs/operating.md gives them.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile(`(?m)^ACL SETUSER (\w+) .*$`).FindAllStringSubmatch(string(page), -1)
	if len(users) != 2 {
		t.Fatalf("docs/operating.md has %d users, want a gateway and a worker", len(users))
	}
	server := redistest.Start(t)
	d := deploy(t, gatewaytest.Config{})
	d.rdb, d.prefix = server.Client(t), "sluice"
	api := d.flags[0]
	as := make(map[string][]string)
	for _, user := range users {
		var words []any
		for _, word := range strings.Fields(strings.Replace(user[0], "PASSWORD", "secret", 1)) {
			words = append(words, word)
		}
		if err := d.rdb.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
		as[user[1]] = []string{api, "--redis.url=redis://" + user[1] + ":secret@" + server.Addr() + "/0"}
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
	editlog.prints(t, `"Helo" became "Hello"`)
	welcome.prints(t, "welcome to Tea House, mira")
	first.stop(t)
	second := start("gateway", as["gateway"])
	if err := d.discord.WaitResumes(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	d.send(t, "MESSAGE_UPDATE", about(author+`,"content":"Hello!"`))
	d.send(t, "MESSAGE_UPDATE", about(`,"content":5`)) // which no listener can take
	d.send(t, "GUILD_DELETE", `{"id":"`+guild+`"}`)
	editlog.prints(t, `"Hello" became "Hello!"`)
	eventually(t, "there is a dead letter", func() bool { return d.rdb.XLen(t.Context(), "{sluice:0/1}:dead:edits").Val() == 1 })
	for _, p := range []*program{editlog, welcome, second} {
		p.stop(t)
		if strings.Contains(p.stderr.String(), "NOPERM") {
			t.Errorf("%s:\n%s", p.cmd.Path, p.stderr.String())
		}
	}
	denied, err := d.rdb.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(denied) > 0 {
		t.Errorf("denied: %v, %v", denied, err)
	}
}
