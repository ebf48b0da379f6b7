package forward_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	p, err := forward.NewPublisher(rdb, prefix, forward.Topology{Shards: 1, Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	id, err := p.Publish(t.Context(), "orders.created", "9001", map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), "orders.raw", "a key", json.RawMessage(`{"a":1e3}`)); err != nil {
		t.Fatal(err)
	}
	got := entries(t, rdb, prefix)
	if len(got) != 2 {
		t.Fatalf("%d entries, want 2", len(got))
	}
	created := of(got, "orders.created")[0]
	lane := wire.Lane([]byte("9001"), lanes)
	if want := "0/" + itoa(int64(lane)) + "/" + created.ID; id != want || string(created.Payload) != `{"n":1}` || created.Received == 0 {
		t.Errorf("id %s, entry %+v, want id %s", id, created.Entry, want)
	}
	if raw := of(got, "orders.raw")[0]; string(raw.Payload) != `{"a":1e3}` {
		t.Errorf("raw payload = %s", raw.Payload)
	}
	for name, want := range map[string]string{
		"": "", "orders..created": "", "MESSAGE_CREATE": "Discord", "message.create": "Discord", "sluice.session.lost": "gateway's", "sluice": "gateway's",
	} {
		if _, err := p.Publish(t.Context(), name, "", 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Publish(%q) = %v, want an error that says %q", name, err, want)
		}
	}
	if _, err := p.Publish(t.Context(), "orders.created", "", func() {}); err == nil {
		t.Error("a payload that is no JSON was published")
	}
}

func TestPublishTriesAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	p, err := forward.NewPublisher(rdb, "", forward.Topology{Shards: 3, Lanes: 2})
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Publish(short, "orders.created", "k", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish without a Redis = %v, want %v", err, context.DeadlineExceeded)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.Publish(t.Context(), "orders.created", "k", 1)
		done <- err
	}()
	server.Restart(t)
	if err := <-done; err != nil {
		t.Errorf("Publish after the restart = %v", err)
	}
}
