package replay

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Worker may be told. The zero value works.
type Config struct {
	// Prefix begins all Redis keys of the deployment. Empty: "sluice".
	Prefix string

	// Group is the consumer group the worker belongs to. Every group gets every
	// entry; the workers of a group share them. Empty: "workers".
	Group string

	// Consumer names this worker in Redis: among the group's consumers it is this
	// name, a slash and a random part, so that no two workers are ever taken for one.
	// Empty: host name, process id and a random part.
	Consumer string

	// Start is where a group that does not exist yet begins: "0" with all that is
	// still in the streams, "$" with what comes from now on, a stream id (1-0)
	// behind that entry, a time (RFC 3339) with the first entry of that time or
	// later. A group that was lost while the worker served it begins again with
	// everything. Empty: "0".
	Start string

	// Concurrency is how many listeners run at once. An eighth as many more, at
	// least one, run only entries of express streams. 0: 64.
	Concurrency int

	// MaxInHand is how many entries are in memory, waiting for their listeners;
	// the worker reads no more until some have ended. Entries of express streams
	// count apart, against a quarter of it. 0: 4096.
	MaxInHand int

	// MaxDeliveries is how often a listener is run for an entry before it is given
	// up, the first time included; a listener's own MaxAttempts goes before it. 0: 5.
	MaxDeliveries int

	// Backoff is how long a failed listener waits before its second run for the
	// entry; it doubles with each further one up to BackoffMax, and up to a half of
	// it is taken off at random. 0: 1s and 1m.
	Backoff, BackoffMax time.Duration

	// ListenerTimeout is when the context of a run ends; a listener's own Timeout
	// goes before it. 0: 30s.
	ListenerTimeout time.Duration

	// Lease is how long lanes stay with a worker that does not renew them: what a
	// crash delays its entries by. 0: 5s. The least is 200ms.
	Lease time.Duration

	// DrainTimeout is how long Run waits for running listeners once it is to end;
	// then their contexts end. 0: 25s.
	DrainTimeout time.Duration

	// DeadLength and DeadAge bound the dead letters of a shard, in entries and in
	// time since they were written. 0: 10000 and 336h.
	DeadLength int
	DeadAge    time.Duration

	// OnDead, if not nil, is called for each dead letter once it is stored: one after
	// another, on a goroutine of their own. While it is more than 1024 letters behind,
	// further ones are not told but counted. A panic is logged. Run waits for it.
	OnDead func(DeadLetter)

	// Events are the patterns of what the gateway forwards (forward.events): New
	// refuses a listener that is only for dispatches that are not among them. Empty:
	// everything.
	Events []string

	// Expire is after how long an entry of a type is no longer run, counted from when
	// it was written, by Redis' clock: its listeners have ended with it, and it is
	// counted. A listener's own MaxAge goes before it. For INTERACTION_CREATE it is
	// about a listener's first run only: what has been started in time is run again
	// if it fails. Names are those of dispatch types (TYPING_START) and of custom
	// events; 0: never; a type that is not named: what DefaultExpire says.
	Expire map[string]time.Duration

	// Off are names of listeners that are passed over: their entries count as
	// ended, and are counted.
	Off []string

	// Logger gets the worker's log. nil: slog.Default().
	Logger *slog.Logger

	// Metrics gets the worker's metrics, labelled with the group. nil: none.
	Metrics prometheus.Registerer
}

// minLease is what two renewals and a hiccup fit into.
const minLease = 200 * time.Millisecond

// withDefaults returns c with its zero fields filled, and all that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	text := func(field *string, fallback string) {
		if *field == "" {
			*field = fallback
		}
	}
	number := func(name string, field *int, fallback int) {
		if *field < 0 {
			errs = append(errs, fmt.Errorf("value of Config.%s is %d, want 0 (for %d) or more", name, *field, fallback))
		}
		if *field == 0 {
			*field = fallback
		}
	}
	duration := func(name string, field *time.Duration, fallback time.Duration) {
		if *field < 0 {
			errs = append(errs, fmt.Errorf("value of Config.%s is %v, want 0 (for %v) or more", name, *field, fallback))
		}
		if *field == 0 {
			*field = fallback
		}
	}
	text(&c.Prefix, "sluice")
	text(&c.Group, "workers")
	text(&c.Start, "0")
	number("Concurrency", &c.Concurrency, 64)
	number("MaxInHand", &c.MaxInHand, 4096)
	number("MaxDeliveries", &c.MaxDeliveries, 5)
	number("DeadLength", &c.DeadLength, 10000)
	duration("Backoff", &c.Backoff, time.Second)
	duration("BackoffMax", &c.BackoffMax, time.Minute)
	duration("ListenerTimeout", &c.ListenerTimeout, 30*time.Second)
	duration("Lease", &c.Lease, 5*time.Second)
	duration("DrainTimeout", &c.DrainTimeout, 25*time.Second)
	duration("DeadAge", &c.DeadAge, 336*time.Hour)
	expire, wrong := expiries(c.Expire)
	c.Expire = expire
	errs = append(errs, wrong...)
	if c.Lease > 0 && c.Lease < minLease {
		errs = append(errs, fmt.Errorf("value of Config.Lease is %v, want at least %v", c.Lease, minLease))
	}
	if c.BackoffMax < c.Backoff {
		errs = append(errs, fmt.Errorf("value of Config.BackoffMax is %v, less than Config.Backoff, %v", c.BackoffMax, c.Backoff))
	}
	for _, name := range []struct{ field, value string }{{"Prefix", c.Prefix}, {"Group", c.Group}, {"Consumer", c.Consumer}} {
		if strings.ContainsAny(name.value, "{} \t\r\n\x00") || len(name.value) > 100 {
			errs = append(errs, fmt.Errorf("value of Config.%s is %q, want at most 100 bytes without spaces and braces", name.field, name.value))
		}
	}
	start, err := startID(c.Start)
	if err != nil {
		errs = append(errs, err)
	}
	c.Start = start
	if c.Consumer == "" {
		host, err := os.Hostname()
		if err != nil || host == "" || strings.ContainsAny(host, "{} \t\r\n") {
			host = "worker"
		}
		c.Consumer = host[:min(len(host), 60)] + "-" + strconv.Itoa(os.Getpid()) + "-" + randomText()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// startID returns what XGROUP CREATE takes for a Config.Start: the id behind
// which a group begins.
func startID(start string) (string, error) {
	if start == "$" {
		return start, nil
	}
	if id, ok := parseID(start); ok {
		return id.String(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, start)
	if err != nil || t.UnixMilli() < 1 {
		return "", fmt.Errorf(`Config.Start is %q, want "0", "$", a stream id or a time as in RFC 3339`, start)
	}
	return behind(t), nil
}

// behind returns the last id before a time.
func behind(t time.Time) string {
	return entryID{ms: uint64(t.UnixMilli() - 1), seq: 1<<64 - 1}.String()
}

// randomText returns 8 characters that no other process will come up with.
func randomText() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
