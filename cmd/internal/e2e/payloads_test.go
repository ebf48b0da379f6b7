package e2e

import (
	"slices"
	"testing"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"

	"github.com/sluicehq/sluice/internal/proctest"
)

// TestEveryPayload sends one dispatch of each type, and every payload that has
// broken software before, and finds each as it was sent.
func TestEveryPayload(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"json", "msgpack"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			discord := gatewaytest.New(gatewaytest.Config{})
			if err := discord.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { discord.Close() })
			r := newRun(t, 1, "--forward.codec="+codec)
			r.discord = discord
			gateway := r.gateway(t)
			if err := discord.WaitConnected(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			all := corpus.Dispatches()
			for _, s := range corpus.Scenarios() {
				all = append(all, s.Envelopes...)
			}
			want := map[string]int{} // by type and payload
			n := 1                   // READY
			for _, e := range all {
				if e.Type == "" || e.Type == "READY" {
					continue
				}
				if _, err := discord.Send(0, e.Type, e.Payload); err != nil {
					t.Fatalf("send %s %.100q: %v", e.Type, e.Payload, err)
				}
				want[e.Type+string(e.Payload)]++
				n++
			}
			proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= n })
			types := []string{}
			for _, e := range r.entries(t) {
				if e.Event == "READY" {
					continue
				}
				if e.Codec == "msgpack" {
					continue // compared by value elsewhere
				}
				key := e.Event + string(e.Payload)
				if want[key]--; want[key] < 0 {
					t.Errorf("%s %.200q was not sent, or not as often", e.Event, e.Payload)
				}
				types = append(types, e.Event)
			}
			if codec == "json" {
				for key, left := range want {
					if left > 0 {
						t.Errorf("%.200q is %d times not in the streams", key, left)
					}
				}
				if !slices.Contains(types, "LANTERN_NUMBERS") {
					t.Error("an unknown type was not forwarded")
				}
			}
			if code := gateway.Stop(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if n := len(discord.Identifies()); n != 1 {
				t.Errorf("%d identifies, want 1: something was renewed", n)
			}
		})
	}
}
