package cachemodel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/corpus"
)

// TestSource finds in what is made up all types, valid JSON unless it is odd, and
// a previous state often enough to prove something.
func TestSource(t *testing.T) {
	t.Parallel()
	s := cachemodel.NewSource(1, cachemodel.Size{Guilds: 3, Channels: 3, Users: 5, Messages: 10})
	m := cachemodel.New()
	seen, known, parts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	beside := map[string]bool{}
	for i := range 20_000 {
		name, payload := s.Next()
		if !json.Valid(payload) {
			t.Fatalf("%s is made %s", name, payload)
		}
		state := m.Apply(name, payload)
		seen[name] = true
		known[name] = known[name] || len(state.Previous) > 2
		parts[name] = parts[name] || state.Partial
		if i%100 != 0 {
			continue
		}
		for _, fields := range m.Content().Normal() {
			for field := range fields {
				if _, what, ok := strings.Cut(field, ":"); ok {
					beside[what] = true
				}
			}
		}
	}
	for _, e := range corpus.Dispatches() {
		if !seen[e.Type] {
			t.Errorf("no %s is made", e.Type)
		}
		if recorded[e.Type] && !known[e.Type] {
			t.Errorf("no %s has a state", e.Type)
		}
	}
	for _, name := range []string{
		"GUILD_MEMBER_ADD", "GUILD_BAN_REMOVE", "INTEGRATION_UPDATE", "INVITE_DELETE", "ENTITLEMENT_DELETE", "SUBSCRIPTION_UPDATE",
		"THREAD_LIST_SYNC", "THREAD_MEMBER_UPDATE", "THREAD_MEMBERS_UPDATE", "VOICE_CHANNEL_STATUS_UPDATE", "VOICE_CHANNEL_START_TIME_UPDATE",
		"MESSAGE_REACTION_REMOVE_ALL", "MESSAGE_REACTION_REMOVE_EMOJI",
	} {
		if !known[name] {
			t.Errorf("no %s has a state", name)
		}
	}
	for _, name := range []string{"GUILD_MEMBER_UPDATE", "GUILD_UPDATE", "MESSAGE_DELETE_BULK", "THREAD_MEMBERS_UPDATE"} {
		if !parts[name] {
			t.Errorf("no %s has a state known in part", name)
		}
	}
	for _, what := range []string{"reactions", "poll", "member_count", "voice", "left"} {
		if !beside[what] {
			t.Errorf("nothing is kept as %s", what)
		}
	}
}
