package cache_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/redistest"
)

// TestReaderRights has a Reader get by with the rights that docs/operating.md
// gives it.
func TestReaderRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("`(~\\{sluice:\\*\\}:cache:[^`]+)`").FindSubmatch(page)
	if rights == nil {
		t.Fatal("docs/operating.md says nothing of a reader's rights")
	}
	server := redistest.Start(t)
	l := &layout{t: t, rdb: server.Client(t), prefix: "sluice", shards: 2}
	l.guild9()
	rule := []any{"ACL", "SETUSER", "reader", "on", ">secret", "resetchannels", "-@all"}
	for word := range strings.FieldsSeq(string(rights[1])) {
		rule = append(rule, word)
	}
	if err := l.rdb.Do(t.Context(), rule...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "reader", Password: "secret"})
	t.Cleanup(func() { rdb.Close() })
	r, err := cache.NewReader(rdb, l.prefix, l.shards)
	if err != nil {
		t.Fatal(err)
	}
	b := r.Batch()
	b.Guild("9")
	b.Channels("9")
	b.Members("9", []string{"1"})
	b.Permissions("9", "20", "1")
	b.MemberRoles("9", "1")
	b.Self()
	if err := b.Read(t.Context()); err != nil {
		t.Error(err)
	}
	gather(t, r.Guilds(t.Context()))
	gather(t, r.Threads(t.Context(), "9"))
	gather(t, r.Members(t.Context(), "9"))
	gather(t, r.ThreadMembers(t.Context(), "9", "20"))
	gather(t, r.Messages(t.Context(), "9", "10", 0))
	if _, err := r.GuildIDs(t.Context()); err != nil {
		t.Error(err)
	}
	if err := rdb.HSet(t.Context(), l.key("9", "guild"), "9", "{}").Err(); err == nil {
		t.Error("a reader may write")
	}
}
