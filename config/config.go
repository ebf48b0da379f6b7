// Package config reads the configuration that all of Sluice's programs share: a
// YAML file, over it the environment, over it flags. It checks everything before
// anything starts, and reports all that is wrong at once.
//
// Each setting is one line of a table (see keys.go): the file's path, the
// variable, the flag, the check and the page docs/configuration.md all come
// from it.
package config

import (
	"encoding/json"
	"io"
	"log/slog"
	"time"
)

// A Config is a whole, valid configuration. Sections and fields are named as in
// the file. It is plain data: change a copy as you like.
type Config struct {
	Discord Discord
	Gateway Gateway
	Redis   Redis
	Cache   Cache
	Forward Forward
	Replay  Replay
	Log     Log
	Admin   Admin

	// File is the path of the file that was read, empty if there was none.
	File string
	// Warnings are what the operator should know though it stops nothing: SLUICE_
	// variables that are no setting. One line each, without values.
	Warnings []string
}

// Discord says which bot this is, and what it is to receive.
type Discord struct {
	Token    string          // without "Bot "; empty: none is configured
	APIURL   string          // without a slash at the end
	Intents  int             // sum of the intents' bits
	Shards   int             // 0: auto
	ShardIDs []int           // ascending; empty: all
	Compress string          // gateway.CompressZlibStream or gateway.CompressNone
	Presence json.RawMessage // a JSON object; nil: none
}

// Gateway bounds what a connection may bring.
type Gateway struct {
	MaxFrameBytes int64
}

// Redis says where the server is and how the keys begin.
type Redis struct {
	URL          string // may hold a password: show it with redisclient.Redact
	Prefix       string
	EmbeddedAddr string // host:port, used if URL is "embedded"
}

// Embedded reports whether the server is to run inside the process.
func (r Redis) Embedded() bool { return r.URL == "embedded" }

// Cache bounds what is remembered of entities.
type Cache struct {
	Off                []string // kinds
	MemoryBytes        int64    // of the process, all shards
	MessageAge         time.Duration
	MessagesPerChannel int
}

// Forward bounds and shapes the streams.
type Forward struct {
	Events       []string // patterns; empty: all
	Lanes        int      // per shard; 0: auto
	Keep         time.Duration
	AbandonAfter time.Duration
	MaxLength    int64
	MaxBytes     int64
	MaxPayload   int64 // bytes
	BufferBytes  int64
	Codec        string // json or msgpack
}

// Replay shapes a worker.
type Replay struct {
	Group           string
	Start           string // "0", "$", a stream id or a time in RFC 3339
	Concurrency     int
	MaxInHand       int
	MaxDeliveries   int
	Backoff         time.Duration
	BackoffMax      time.Duration
	ListenerTimeout time.Duration
	Lease           time.Duration
	DrainTimeout    time.Duration
	DeadLength      int
	DeadAge         time.Duration
	Expire          map[string]time.Duration // by event type or custom event; 0: never
	Off             []string                 // listeners
}

// Log shapes the log on standard error.
type Log struct {
	Level  slog.Level
	Format string // text or json
}

// Logger returns the logger that l describes, writing to w.
func (l Log) Logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Admin is the HTTP address for metrics and health.
type Admin struct {
	Addr string // empty: off
}

// RequireToken returns a *UsageError if no token is configured. A worker may run
// without one; a gateway may not.
func (c *Config) RequireToken() error {
	if c.Discord.Token != "" {
		return nil
	}
	return &UsageError{Faults: []Fault{{
		Path: tokenPath,
		Want: "the bot's token in " + envName(tokenPath) + ", in DISCORD_TOKEN, in the file that " + tokenFilePath + " names, or in the configuration file",
	}}}
}
