package replay_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

func TestNew(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { client.Close() })
	for name, test := range map[string]struct {
		config replay.Config
		want   []string // in the error; none: no error
	}{
		"zero":        {replay.Config{}, nil},
		"starts":      {replay.Config{Start: "2026-01-02T03:04:05Z"}, nil},
		"start id":    {replay.Config{Start: "1700000000000-5"}, nil},
		"start $":     {replay.Config{Start: "$"}, nil},
		"start wrong": {replay.Config{Start: "yesterday"}, []string{"Start", "yesterday"}},
		"negative":    {replay.Config{Concurrency: -1, MaxInHand: -2, Backoff: -time.Second}, []string{"Concurrency", "MaxInHand", "Backoff"}},
		"lease":       {replay.Config{Lease: time.Millisecond}, []string{"Lease", "200ms"}},
		"backoff":     {replay.Config{Backoff: time.Hour}, []string{"BackoffMax", "1h0m0s"}},
		"group":       {replay.Config{Group: "a b"}, []string{"Group", `"a b"`}},
		"prefix":      {replay.Config{Prefix: "{x}"}, []string{"Prefix"}},
	} {
		_, err := replay.New(client, listener.New(), test.config)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: New = %v, want an error: %t", name, err, len(test.want) > 0)
			continue
		}
		for _, text := range test.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: New = %q, want %q named", name, err, text)
			}
		}
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, err := replay.New(ring, listener.New(), replay.Config{}); !errors.Is(err, replay.ErrClient) {
		t.Errorf("New with a ring = %v, want ErrClient", err)
	}
	if _, err := replay.New(client, nil, replay.Config{}); err == nil {
		t.Error("New without a registry succeeds")
	}
}
