package listener

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// A Delivery is one run of one listener for one event, and the event as it came.
// It is plain data: a test may make one.
type Delivery struct {
	// ID names the event's entry, uniquely in the deployment:
	// <shard>/<lane>/<stream id>, or <shard>/x<lane>/<stream id> from express.
	ID string
	// Type is the dispatch type as Discord names it, or a custom event's name.
	Type string
	// Session stands for the Discord session the dispatch came by; it can't be
	// used to resume it. Empty for custom events.
	Session string
	// GuildID is the guild the event belongs to, empty if it belongs to none.
	GuildID string
	// Listener is the name of the listener that is run.
	Listener string
	// Trace is the entry's W3C traceparent, or empty.
	Trace string

	// Shard is the shard the event came through.
	Shard int
	// Sequence is the dispatch's in its session; 0: it is no dispatch.
	Sequence int64

	// Attempt counts the runs of this listener for this event, from 1; it is
	// given up after MaxAttempts.
	Attempt, MaxAttempts int

	// Received is when the gateway read the dispatch, to the millisecond.
	Received time.Time

	// Sync marks a GUILD_CREATE that READY announced or that ends an outage: the
	// bot has not joined the guild.
	Sync bool
	// Synthetic marks an event that the gateway made, not Discord.
	Synthetic bool
	// Slim: bulky arrays were left out of the payload. They are in the cache.
	Slim bool
	// Partial: the previous state is known only in part, or could not be decoded.
	Partial bool

	// Payload is the event's payload and Previous the entity before it, as JSON
	// whatever the codec. Previous is empty if nothing was known. All listeners
	// of an event share them: read only.
	Payload, Previous json.RawMessage
}

// Key returns a key for making the effects of a listener idempotent: the same in
// every run of the listener for the event, also when the event had to be put into
// the stream again or was redriven from the dead letters, and another one for
// every other listener and event. It has 22 characters and so fits the nonce of a
// Discord message.
func (d *Delivery) Key() string {
	var b []byte
	if d.Sequence > 0 && d.Session != "" && !d.Synthetic && dispatch.IsType(d.Type) {
		b = append(b, d.Session...)
		b = append(b, '/')
		b = strconv.AppendInt(b, int64(d.Shard), 10)
		b = append(b, '/')
		b = strconv.AppendInt(b, d.Sequence, 10)
	} else {
		b = append(b, d.ID...)
	}
	b = append(b, 0)
	b = append(b, d.Listener...)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Field returns a top-level member of the payload, as it stands there. ok is
// false if the payload does not have it; null is a value, so what was cleared and
// what was not sent differ. Names match as encoding/json matches them: ASCII
// letters in both cases, the last member wins.
func (d *Delivery) Field(name string) (value json.RawMessage, ok bool) {
	v := rawjson.Get(d.Payload, strings.ToLower(name))
	return v[:len(v):len(v)], v != nil
}

// An Event is an event with its payload and the entity's previous state decoded.
type Event[T, P any] struct {
	Delivery

	// New is the payload. All listeners of an event share it: read only.
	//
	// A message, or a modal sent in, with a component that discordgo does not know
	// is decoded without its components; Payload has them.
	New T
	// Old is the entity as it was before this very dispatch; nil if it was not
	// known, or can't be decoded (then Partial is set). Shared like New.
	Old P
}
