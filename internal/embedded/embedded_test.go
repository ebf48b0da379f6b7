package embedded_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "a", "b", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for rdb.Exists(t.Context(), "a").Val() == 1 {
		if time.Now().After(deadline) {
			t.Fatal("a key did not expire")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := embedded.Start(s.Addr()); err == nil {
		t.Error("a second server took the same address")
	}
}
