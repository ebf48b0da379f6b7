package cache_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
)

// TestPage runs the commands of docs/cache.md against a cache as it describes it:
// each prints the lines that are behind it as comments.
func TestPage(t *testing.T) {
	t.Parallel()
	page := readPage(t, "../docs/cache.md")
	if _, err := exec.LookPath("redis-cli"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	server := redistest.Start(t)
	l := &layout{t: t, rdb: server.Client(t), prefix: "sluice", shards: 1}
	l.teaHouse()
	port := server.Addr()[strings.LastIndex(server.Addr(), ":")+1:]
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, step := range regexp.MustCompile(`(?m)^([^#\n].*)\n((?:# .*\n)*)`).FindAllStringSubmatch(block[1], -1) {
			shell := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(step[1], "redis-cli", "redis-cli -p "+port))
			got, err := shell.CombinedOutput()
			want := strings.ReplaceAll("\n"+step[2], "\n# ", "\n")[1:]
			if err != nil || string(got) != want {
				t.Errorf("%s\nprints %s (%v)\nthe page says %s", step[1], got, err, want)
			}
			ran++
		}
	}
	if ran < 15 {
		t.Errorf("ran %d commands: the page has more", ran)
	}
}

// TestPageShowsTheExample has the Go on docs/cache.md be part of an example.
func TestPageShowsTheExample(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(readPage(t, "../docs/cache.md"), "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok || code == "" || !strings.Contains(readPage(t, "../examples/whoami/main.go"), code) {
		t.Errorf("docs/cache.md shows what is not in examples/whoami:\n%s", code)
	}
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// teaHouse writes the guild that docs/cache.md asks for.
func (l *layout) teaHouse() {
	const guild, channel, thread, message = "1100000000000000001", "1100000000000000002", "1100000000000000005", "1300000000000000009"
	if err := l.rdb.HSet(l.t.Context(), "sluice:topology", "shards", "1").Err(); err != nil {
		l.t.Fatal(err)
	}
	l.put(guild, "guild", guild, `{"id":"`+guild+`","name":"Tea House","owner_id":"7","member_count":2}`, guild+":member_count", "3")
	l.put(guild, "channel:"+guild, channel, `{"id":"`+channel+`","type":0,"name":"general"}`)
	l.put(guild, "thread:"+guild, thread, `{"id":"`+thread+`","type":11,"name":"a thread","parent_id":"`+channel+`"}`)
	l.put(guild, "member:"+guild, "7", `{"user":{"id":"7","username":"mira"},"roles":["21"]}`)
	l.put(guild, "member:"+guild, "8", `{"user":{"id":"8","username":"tom"},"roles":[]}`)
	l.put(guild, "role:"+guild, "21", `{"id":"21","name":"Brewer","permissions":"8192"}`)
	l.put(guild, "voice_state:"+guild, "7", `{"user_id":"7","channel_id":"1100000000000000004"}`)
	l.put(guild, "emojis", guild, `[{"id":"31","name":"teapot"}]`)
	l.put("", "user", "@me", `{"id":"1","username":"bot"}`)
	bucket := channel + ":" + bucketName(message)
	l.put(guild, "message:"+bucket, message, `{"id":"`+message+`","channel_id":"`+channel+`","content":"hello"}`,
		message+":reactions", `[{"emoji":{"id":null,"name":"🍵"},"count":2,"me":false}]`)
	if err := l.rdb.ZAdd(l.t.Context(), l.key(guild, "buckets:"+guild), redis.Z{Score: 1, Member: bucket}).Err(); err != nil {
		l.t.Fatal(err)
	}
}
