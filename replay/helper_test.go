package replay_test

import (
	"testing"

	"github.com/bwmarrin/discordgo"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

type (
	discordgoMessage       = discordgo.Message
	discordgoMessageUpdate = discordgo.MessageUpdate
)

func xpending(stream, group string) *redis.XPendingExtArgs {
	return &redis.XPendingExtArgs{Stream: stream, Group: group, Start: "-", End: "+", Count: 100}
}

// total adds up a metric of a registry, by name, over all its labels.
func total(t testing.TB, reg prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
