package cachemodel_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluicehq/sluice/internal/cachemodel"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/corpus/seeds"
)

// recorded are the types that the recorded sessions' expected states know of.
// Others have states too, which they do not tell.
var recorded = map[string]bool{
	"MESSAGE_UPDATE": true, "MESSAGE_DELETE": true, "MESSAGE_DELETE_BULK": true,
	"GUILD_MEMBER_UPDATE": true, "GUILD_MEMBER_REMOVE": true, "GUILD_UPDATE": true, "GUILD_DELETE": true,
	"CHANNEL_UPDATE": true, "CHANNEL_DELETE": true, "THREAD_UPDATE": true, "THREAD_DELETE": true,
	"GUILD_ROLE_UPDATE": true, "GUILD_ROLE_DELETE": true, "GUILD_EMOJIS_UPDATE": true, "GUILD_STICKERS_UPDATE": true,
	"VOICE_STATE_UPDATE": true, "PRESENCE_UPDATE": true, "USER_UPDATE": true,
	"GUILD_SCHEDULED_EVENT_UPDATE": true, "GUILD_SCHEDULED_EVENT_DELETE": true,
	"STAGE_INSTANCE_UPDATE": true, "STAGE_INSTANCE_DELETE": true,
	"GUILD_SOUNDBOARD_SOUND_UPDATE": true, "GUILD_SOUNDBOARD_SOUND_DELETE": true,
	"AUTO_MODERATION_RULE_UPDATE": true, "AUTO_MODERATION_RULE_DELETE": true,
}

// states plays a session and returns the previous state of each dispatch of the
// recorded types that has one, and how many of other types have.
func states(envelopes []corpus.Envelope) (known map[int64]string, others int) {
	known = make(map[int64]string)
	m := cachemodel.New()
	for _, e := range envelopes {
		state := string(m.Apply(e.Type, e.Payload).Previous)
		switch {
		case state == "" || state == "[]": // an empty list counts as nothing
		case recorded[e.Type]:
			known[e.Seq()] = cachemodel.Canonical(state)
		default:
			others++
		}
	}
	return known, others
}

func TestRecordedSession(t *testing.T) {
	t.Parallel()
	got, others := states(corpus.SessionEnvelopes())
	file := corpus.Expected()
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 4<<20)
	n := 0
	for ; scanner.Scan(); n++ {
		var e struct {
			S        int64
			T        string
			Previous json.RawMessage
		}
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if want := cachemodel.Canonical(string(e.Previous)); got[e.S] != want {
			t.Errorf("before %s, s %d:\n got %s\nwant %s", e.T, e.S, got[e.S], want)
		}
	}
	if n != 875 || len(got) != n {
		t.Errorf("%d states, %d expected, want 875", len(got), n)
	}
	if others == 0 {
		t.Error("no other type has a state")
	}
}

func TestOtherSeeds(t *testing.T) {
	t.Parallel()
	for _, s := range seeds.Sessions {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			envelopes := s.Envelopes()
			got, _ := states(envelopes)
			hash := sha256.New()
			for _, e := range envelopes {
				if state := got[e.Seq()]; state != "" {
					fmt.Fprintf(hash, "%d %s %s\n", e.Seq(), e.Type, state)
				}
			}
			if sum := fmt.Sprintf("%x", hash.Sum(nil)); len(got) != s.States || sum != s.Hash {
				t.Errorf("%d states with hash %s, want %d with %s", len(got), sum, s.States, s.Hash)
			}
		})
	}
}
