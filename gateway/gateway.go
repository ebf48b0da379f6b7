// Package gateway holds connections to Discord's gateway, one [Shard] each: it
// connects, identifies, resumes, heartbeats, and hands every dispatch to a
// [Handler], in order and as the bytes Discord sent.
//
// A shard resumes wherever Discord lets it: after a lost connection, after a
// restart of the process (the caller gives [Shard.Run] the [Session] it kept),
// and after a zombie connection, which it closes with a code that leaves the
// session alive. It never closes with 1000 or 1001, which end it.
//
// Rules: https://discord.com/developers/docs/events/gateway
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// The values of Config.Compress.
const (
	CompressZlibStream = "zlib-stream"
	CompressNone       = "none"
)

// Defaults of Config.
const (
	DefaultMaxFrameBytes      = 64 << 20
	DefaultHandshakeTimeout   = 20 * time.Second
	DefaultReadyTimeout       = 2 * time.Minute
	DefaultBackoffMin         = time.Second
	DefaultBackoffMax         = time.Minute
	DefaultInvalidSessionWait = 5 * time.Second
)

// A Config describes one shard. Token and URL must be set; every other field
// has a useful zero value.
type Config struct {
	// Token is the bot's token, with or without "Bot " before it. It is sent to
	// Discord and never logged.
	Token string
	// URL is the gateway's address as [Bot] reports it (wss://… or ws://…). The
	// protocol version, encoding and compression are added to its query. It is
	// used to identify, and to resume when the session's own address fails.
	URL string

	// Shard is this shard's number, from 0; Shards how many there are (0: 1).
	Shard, Shards int
	// Intents is the sum of the intents asked for; 0 asks for none.
	// Source: https://discord.com/developers/docs/events/gateway#gateway-intents
	Intents int
	// Compress is CompressZlibStream (empty: that) or CompressNone.
	Compress string
	// Presence is the presence sent with IDENTIFY, a JSON object; nil: none.
	Presence json.RawMessage
	// LargeThreshold is the number of members from which a guild's offline
	// members are not sent, 50 to 250; 0 leaves it to Discord (50).
	LargeThreshold int
	// MaxFrameBytes bounds one message after inflation; 0: 64 MiB. A larger one
	// is read past without being kept, counted, and logged as an error.
	MaxFrameBytes int64

	// MaxConcurrency is Discord's max_concurrency (BotInfo has it); 0: 1. It
	// only decides the bucket the Pacer is asked for.
	MaxConcurrency int
	// Pacer spaces identifies. Shards of one bot must share one, over all
	// processes. nil: a LocalPacer of this shard's own.
	Pacer Pacer

	// HandshakeTimeout bounds connecting, up to Discord's hello; 0: 20 s.
	HandshakeTimeout time.Duration
	// ReadyTimeout bounds the silence between IDENTIFY or RESUME and the
	// dispatches it brings, judged at each heartbeat; 0: 2 min.
	ReadyTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait before a reconnect, which doubles
	// with each connection that brought nothing and is cut by up to half at
	// random; 0: 1 s and 1 min. After a connection that served there is none.
	BackoffMin, BackoffMax time.Duration
	// InvalidSessionWait is the longest wait after Discord refused a session;
	// 0: 5 s. The shortest is a fifth of it.
	InvalidSessionWait time.Duration

	Logger  *slog.Logger          // nil: slog.Default()
	Metrics prometheus.Registerer // nil: none; shards may share one
}

// A Session is what a RESUME needs. The zero value stands for no session: the
// shard identifies. ID is a secret of the bot like its token.
type Session struct {
	ID        string // session_id of READY
	ResumeURL string // resume_gateway_url of READY; empty: Config.URL
	Sequence  int64  // of the last dispatch that need not come again
}

// A Dispatch is one event as Discord sent it. The receiver owns it.
type Dispatch struct {
	Type string // as Discord names it: MESSAGE_UPDATE
	// Sequence is its number in the session; 0: it had none.
	Sequence int64
	// Data is the raw d, in a buffer of its own of exactly its size: "null" if
	// Discord wrote null, nil if it wrote no d at all.
	Data []byte
	// Received is when it was read completely, in unix milliseconds.
	Received int64
	// SessionID is the session it came in; for READY the new one.
	SessionID string
}

// A Handler receives what a shard receives, and has a say in its connections.
// Its methods are called from goroutines of the shard: Dispatch and
// SessionEnded from one, Check and Sequence from others as well.
type Handler interface {
	// Check is called before each connect and before each RESUME and IDENTIFY.
	// An error ends Run with it; nothing is sent.
	Check(ctx context.Context) error
	// Dispatch takes one dispatch, every one that arrives (replayed ones, READY
	// and RESUMED too), in order. It may block: meanwhile the socket is not read
	// and heartbeats go on. An error ends Run with it, closing with 4000.
	Dispatch(ctx context.Context, d Dispatch) error
	// SessionEnded is called when Discord has ended the session (op 9, or a
	// close code that says so): what it had not sent is lost, and the next
	// connection identifies. The reason is fit for a log.
	SessionEnded(ctx context.Context, reason string)
	// Sequence returns the sequence a heartbeat carries, given the last one
	// received; 0 is sent as null. Returning the last one that is safe keeps
	// Discord's replay reaching back that far. It must not block.
	Sequence(received int64) int64
}

// A Pacer spaces identifies: Discord takes one per bucket and 5 seconds.
// Source: https://discord.com/developers/docs/events/gateway#rate-limiting
type Pacer interface {
	// Wait returns when a shard of the bucket may identify. The bucket is the
	// shard's number modulo max_concurrency. An error that is not ctx's ends the
	// shard's Run with it.
	Wait(ctx context.Context, bucket int) error
}

// maxSendBytes is the size of the largest message Discord takes.
// Source: https://discord.com/developers/docs/events/gateway#sending-events
const maxSendBytes = 4096

// filled returns c with its defaults, or every reason why it can't be used.
func (c Config) filled() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.Token = bareToken(c.Token)
	if c.Token == "" {
		bad("no token: set Config.Token")
	}
	if u, err := url.Parse(c.URL); err != nil || (u.Scheme != "ws" && u.Scheme != "wss") || u.Host == "" {
		bad("URL is %q, want the wss:// address that gateway.Bot reports", c.URL)
	}
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Shards < 0 || c.Shard < 0 || c.Shard >= c.Shards {
		bad("shard %d of %d: want a shard from 0 below the number of shards", c.Shard, c.Shards)
	}
	if c.Intents < 0 {
		bad("intents are %d, want a sum of intent bits", c.Intents)
	}
	switch c.Compress {
	case "":
		c.Compress = CompressZlibStream
	case CompressZlibStream, CompressNone:
	default:
		bad("compress is %q, want %q or %q", c.Compress, CompressZlibStream, CompressNone)
	}
	if len(c.Presence) != 0 && (!rawjson.Valid(c.Presence) || !rawjson.IsObject(c.Presence)) {
		bad("presence is not a JSON object")
	}
	if c.LargeThreshold != 0 && (c.LargeThreshold < 50 || c.LargeThreshold > 250) {
		bad("large threshold is %d, want 50 to 250", c.LargeThreshold)
	}
	if c.MaxFrameBytes < 0 {
		bad("max frame bytes is %d, want a positive number", c.MaxFrameBytes)
	}
	if c.MaxConcurrency < 0 {
		bad("max concurrency is %d, want a positive number", c.MaxConcurrency)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"handshake timeout", &c.HandshakeTimeout, DefaultHandshakeTimeout},
		{"ready timeout", &c.ReadyTimeout, DefaultReadyTimeout},
		{"backoff min", &c.BackoffMin, DefaultBackoffMin},
		{"backoff max", &c.BackoffMax, max(DefaultBackoffMax, c.BackoffMin)},
		{"invalid session wait", &c.InvalidSessionWait, DefaultInvalidSessionWait},
	} {
		if *d.value < 0 {
			bad("%s is %v, want a positive duration", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if c.BackoffMax < c.BackoffMin {
		bad("backoff max is %v, below backoff min %v", c.BackoffMax, c.BackoffMin)
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("gateway: %w", errors.Join(errs...))
	}

	if c.MaxFrameBytes == 0 {
		c.MaxFrameBytes = DefaultMaxFrameBytes
	}
	if c.MaxConcurrency == 0 {
		c.MaxConcurrency = 1
	}
	if c.Pacer == nil {
		c.Pacer = &LocalPacer{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// bareToken returns the token without the "Bot " that REST wants before it.
func bareToken(token string) string {
	token = strings.TrimSpace(token)
	word, rest, _ := strings.Cut(token, " ")
	if strings.EqualFold(word, "Bot") {
		return strings.TrimSpace(rest)
	}
	return token
}
