package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

const (
	tokenPath     = "discord.token"
	tokenFilePath = "discord.token_file"
	presencePath  = "discord.presence"
	redisURLPath  = "redis.url"
)

// A key is one setting.
type key struct {
	path string // in the file: section.name
	text string // default, as it would be written
	want string // what is allowed
	doc  string // what it does, for the documentation and --help
	// set parses a text and stores the value. Its error, if it has a text, says
	// more than want does.
	set func(c *Config, text string) error
	// show returns what may be shown of a value that was refused; nil: all.
	show func(text string) string
	// noFlag keeps the setting off the command line, which other users can read.
	noFlag bool
}

// errBad stands for a value that want says enough about.
var errBad = errors.New("")

// keys is the table. Its order is that of the documentation.
var keys = []key{
	{
		path: tokenPath, want: "a bot token, with or without \"Bot \"", show: hide, noFlag: true,
		doc: "The bot's token. `SLUICE_DISCORD_TOKEN` goes first, then `DISCORD_TOKEN`, `discord.token_file`, the file. " +
			"Never logged, and not taken as a flag. A worker may run without one, unless it uses REST.",
		set: func(c *Config, text string) error {
			c.Discord.Token = bareToken(text)
			if strings.ContainsFunc(c.Discord.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				return errBad
			}
			return nil
		},
	},
	{
		path: tokenFilePath, want: "the path of a file that holds the token",
		doc: "A file that holds the token, as secrets are mounted into containers.",
		set: func(*Config, string) error { return nil }, // read by Load
	},
	{
		path: "discord.api_url", text: "https://discord.com/api/v10", want: "an http:// or https:// URL", show: showURL,
		doc: "The base of Discord's REST API. `GET <api_url>/gateway/bot` gives the socket's URL, so another base means another Discord: `sluice sim`, or a proxy.",
		set: func(c *Config, text string) error { return parseAPIURL(&c.Discord.APIURL, text) },
	},
	{
		path: "discord.intents", text: "unprivileged",
		want: "names of intents (GUILD_MESSAGES), unprivileged or all, separated by commas, or a number",
		doc: "What Discord is to send. `unprivileged` is every intent that needs no approval; `unprivileged,MESSAGE_CONTENT` adds one. " +
			"[The names](https://discord.com/developers/docs/events/gateway#list-of-intents) are Discord's.",
		set: func(c *Config, text string) error { return parseIntents(&c.Discord.Intents, text) },
	},
	{
		path: "discord.shards", text: "auto", want: "auto, or a number from 1 to 65536",
		doc: "Number of shards of the deployment. `auto` is the recorded number, or Discord's recommendation where none is recorded yet.",
		set: func(c *Config, text string) error { return autoInt(&c.Discord.Shards, text, 1, maxShards) },
	},
	{
		path: "discord.shard_ids", want: "numbers and ranges below the number of shards, separated by commas (0-15,32)",
		doc: "The shards this process may hold; empty: all. Processes with the same ids stand by for each other.",
		set: func(c *Config, text string) error { return parseShardIDs(&c.Discord.ShardIDs, text) },
	},
	{
		path: "discord.compress", text: gateway.CompressZlibStream, want: gateway.CompressZlibStream + " or " + gateway.CompressNone,
		doc: "Compression of the gateway connection.",
		set: func(c *Config, text string) error {
			return oneOf(&c.Discord.Compress, text, gateway.CompressZlibStream, gateway.CompressNone)
		},
	},
	{
		path: presencePath, want: "a JSON object (in the file also as YAML)",
		doc: "The [presence](https://discord.com/developers/docs/events/gateway-events#update-presence) that is sent with identify.",
		set: func(c *Config, text string) error { return parsePresence(&c.Discord.Presence, text) },
	},
	{
		path: "gateway.max_frame_bytes", text: "64MiB", want: "a size from 1MiB to 1GiB",
		doc: "A larger message of Discord's is read past, counted and logged.",
		set: func(c *Config, text string) error { return size(&c.Gateway.MaxFrameBytes, text, mib, gib) },
	},
	{
		path: redisURLPath, text: "redis://127.0.0.1:6379/0", want: redisclient.Forms + ", or " + redisclient.Embedded,
		show: redisclient.Redact,
		doc: "The Redis server: `redis://…`, with TLS `rediss://…`, a cluster `redis+cluster://host,host`, behind sentinels " +
			"`redis+sentinel://host,host/0?master_name=name`. `embedded` starts one inside the process, for trying out: nothing survives it.",
		set: func(c *Config, text string) error {
			c.Redis.URL = text
			if err := redisclient.Validate(text); err != nil {
				return errors.New(strings.TrimPrefix(err.Error(), redisclient.ErrURL.Error()+": "))
			}
			return nil
		},
	},
	{
		path: "redis.prefix", text: "sluice", want: "1 to 64 letters, digits or characters of . _ : -",
		doc: "What all keys begin with. Deployments that share a server have different ones.",
		set: func(c *Config, text string) error { return word(&c.Redis.Prefix, text, "._:-") },
	},
	{
		path: "redis.embedded_addr", text: "127.0.0.1:6379", want: "host:port",
		doc: "Where the embedded server listens.",
		set: func(c *Config, text string) error { return hostPort(&c.Redis.EmbeddedAddr, text) },
	},
	{
		path: "cache.off", want: "kinds, separated by commas: " + strings.Join(cache.KindNames(), ", "),
		doc: "Kinds of entities that are not cached. They have no previous state.",
		set: func(c *Config, text string) error { return list(&c.Cache.Off, text, isKind) },
	},
	{
		path: "cache.memory_bytes", text: "256MiB", want: "a size from 1MiB",
		doc: "Memory for cached entities, all shards of the process together. What does not fit is in Redis.",
		set: func(c *Config, text string) error { return size(&c.Cache.MemoryBytes, text, mib, math.MaxInt64) },
	},
	{
		path: "cache.message_age", text: "1h", want: "a duration from 1s",
		doc: "How long a message is remembered, counted from the last write into its time bucket.",
		set: func(c *Config, text string) error { return duration(&c.Cache.MessageAge, text, time.Second) },
	},
	{
		path: "cache.messages_per_channel", text: "200", want: "a number from 1 to 1000000",
		doc: "How many messages of a channel are remembered, the newest.",
		set: func(c *Config, text string) error { return integer(&c.Cache.MessagesPerChannel, text, 1, 1e6) },
	},
	{
		path: "forward.events", text: ">", want: "patterns, separated by commas (message.*, GUILD_CREATE)",
		doc: "The events that become entries; `>` is all. The cache sees every dispatch.",
		set: func(c *Config, text string) error {
			return list(&c.Forward.Events, text, func(pattern string) error {
				_, err := dispatch.Compile(pattern)
				return err
			})
		},
	},
	{
		path: "forward.lanes", text: "auto", want: "auto, or a number from 1 to 1024",
		doc: "Lanes per shard, fixed when the deployment is first started. `auto` gives at least 16 in all.",
		set: func(c *Config, text string) error { return autoInt(&c.Forward.Lanes, text, 1, maxLanes) },
	},
	{
		path: "forward.keep", text: "10m", want: "a duration from 1s",
		doc: "Entries younger than this are not trimmed for being acked by all groups, as long as the bounds below are kept and Redis has room.",
		set: func(c *Config, text string) error { return duration(&c.Forward.Keep, text, time.Second) },
	},
	{
		path: "forward.abandon_after", text: "24h", want: "a duration from 1m",
		doc: "How long a group may be without a live worker before entries are no longer kept for it. It is named after a minute; what goes is counted.",
		set: func(c *Config, text string) error { return duration(&c.Forward.AbandonAfter, text, time.Minute) },
	},
	{
		path: "forward.max_length", text: "400000", want: "a number from 1000",
		doc: "Entries per shard, over all its lanes. Over it the oldest go, those first that all groups have acked; what a group has not had is counted.",
		set: func(c *Config, text string) error { return integer(&c.Forward.MaxLength, text, 1000, math.MaxInt64) },
	},
	{
		path: "forward.max_bytes", text: "512MiB", want: "a size from 1MiB",
		doc: "Memory of a shard's streams in Redis, over all its lanes, approximately.",
		set: func(c *Config, text string) error { return size(&c.Forward.MaxBytes, text, mib, math.MaxInt64) },
	},
	{
		path: "forward.max_payload", text: "4MiB", want: "a size from 64KiB to 512MiB",
		doc: "Above it the bulky arrays of a payload are left out (`slim`); they are in the cache.",
		set: func(c *Config, text string) error { return size(&c.Forward.MaxPayload, text, 64*kib, 512*mib) },
	},
	{
		path: "forward.buffer_bytes", text: "64MiB", want: "a size from 1MiB",
		doc: "Dispatches that wait for Redis, per process. When it is full the sockets are not read; Discord keeps the rest.",
		set: func(c *Config, text string) error { return size(&c.Forward.BufferBytes, text, mib, math.MaxInt64) },
	},
	{
		path: "forward.codec", text: wire.JSON, want: wire.JSON + " or " + wire.Msgpack,
		doc: "How payload and state are written. Entries describe themselves: it can be changed at any time.",
		set: func(c *Config, text string) error { return oneOf(&c.Forward.Codec, text, wire.JSON, wire.Msgpack) },
	},
	{
		path: "replay.group", text: "workers", want: "1 to 64 letters, digits or characters of . _ -",
		doc: "The consumer group. Every group gets every entry; the workers of a group share them.",
		set: func(c *Config, text string) error { return word(&c.Replay.Group, text, "._-") },
	},
	{
		path: "replay.start", text: "0", want: "0, $, a stream id (1700000000000-0) or a time (2006-01-02T15:04:05Z)",
		doc: "Where a group that does not exist yet begins: `0` with all that is in the streams, `$` with what comes from now on.",
		set: func(c *Config, text string) error { return parseStart(&c.Replay.Start, text) },
	},
	{
		path: "replay.concurrency", text: "64", want: "a number from 1 to 100000",
		doc: "How many listeners run at once.",
		set: func(c *Config, text string) error { return integer(&c.Replay.Concurrency, text, 1, 1e5) },
	},
	{
		path: "replay.max_in_hand", text: "4096", want: "a number from 1 to 10000000",
		doc: "How many entries a worker holds in memory, waiting for listeners.",
		set: func(c *Config, text string) error { return integer(&c.Replay.MaxInHand, text, 1, 1e7) },
	},
	{
		path: "replay.max_deliveries", text: "5", want: "a number from 1 to 1000",
		doc: "How often a listener is run for an entry before it is a dead letter, the first time included.",
		set: func(c *Config, text string) error { return integer(&c.Replay.MaxDeliveries, text, 1, 1000) },
	},
	{
		path: "replay.backoff", text: "1s", want: "a duration from 1ms",
		doc: "The wait before a listener's second run; it doubles with each further one.",
		set: func(c *Config, text string) error { return duration(&c.Replay.Backoff, text, time.Millisecond) },
	},
	{
		path: "replay.backoff_max", text: "1m", want: "a duration from 1ms",
		doc: "The longest wait before another run.",
		set: func(c *Config, text string) error { return duration(&c.Replay.BackoffMax, text, time.Millisecond) },
	},
	{
		path: "replay.listener_timeout", text: "30s", want: "a duration from 1ms",
		doc: "When a listener's context ends. One that has not returned 5 s later is abandoned.",
		set: func(c *Config, text string) error { return duration(&c.Replay.ListenerTimeout, text, time.Millisecond) },
	},
	{
		path: "replay.lease", text: "5s", want: "a duration from 1s",
		doc: "How long lanes stay with a worker that does not renew them: what a crash delays their entries by.",
		set: func(c *Config, text string) error { return duration(&c.Replay.Lease, text, time.Second) },
	},
	{
		path: "replay.drain_timeout", text: "25s", want: "a duration from 1ms",
		doc: "How long running listeners are waited for at shutdown.",
		set: func(c *Config, text string) error { return duration(&c.Replay.DrainTimeout, text, time.Millisecond) },
	},
	{
		path: "replay.dead_length", text: "10000", want: "a number from 1",
		doc: "Dead letters kept per shard and group.",
		set: func(c *Config, text string) error { return integer(&c.Replay.DeadLength, text, 1, math.MaxInt32) },
	},
	{
		path: "replay.dead_age", text: "336h", want: "a duration from 1m",
		doc: "How long dead letters are kept.",
		set: func(c *Config, text string) error { return duration(&c.Replay.DeadAge, text, time.Minute) },
	},
	{
		path: "replay.expire", text: "INTERACTION_CREATE=3s,TYPING_START=10s", want: "types and durations, separated by commas (TYPING_START=10s); 0 is never",
		doc: "When an event of a type is too old to be run, counted from when it was written, by Redis' clock; it is then counted. A listener's own `MaxAge` goes first. " +
			"For INTERACTION_CREATE only a listener's first run is meant. Types that are not named keep the default.",
		set: func(c *Config, text string) error { return parseExpire(&c.Replay.Expire, text) },
	},
	{
		path: "replay.off", want: "names of listeners, separated by commas",
		doc: "Listeners to pass over. What they would have been given is counted.",
		set: func(c *Config, text string) error { return list(&c.Replay.Off, text, nil) },
	},
	{
		path: "log.level", text: "info", want: "debug, info, warn or error",
		doc: "What is logged.",
		set: func(c *Config, text string) error { return parseLevel(&c.Log.Level, text) },
	},
	{
		path: "log.format", text: "text", want: "text or json",
		doc: "How it is logged, on standard error.",
		set: func(c *Config, text string) error { return oneOf(&c.Log.Format, text, "text", "json") },
	},
	{
		path: "admin.addr", want: "host:port, :port, or nothing",
		doc: "Where `/metrics`, `/healthz` and `/readyz` are served; empty: nowhere.",
		set: func(c *Config, text string) error {
			if text == "" {
				c.Admin.Addr = ""
				return nil
			}
			return hostPort(&c.Admin.Addr, text)
		},
	},
}

const (
	maxShards = 1 << 16
	maxLanes  = 1024

	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// A rule is something two settings must agree on. It is checked if both are
// valid by themselves.
type rule struct {
	first, second string // paths; the fault is reported at the first
	ok            func(c *Config) bool
	want          func(c *Config) string
}

var rules = []rule{
	{
		"discord.shard_ids", "discord.shards",
		func(c *Config) bool {
			ids, n := c.Discord.ShardIDs, c.Discord.Shards
			return n == 0 || len(ids) == 0 || ids[len(ids)-1] < n
		},
		func(c *Config) string { return fmt.Sprintf("ids below discord.shards, which is %d", c.Discord.Shards) },
	},
	{
		"forward.max_payload", "forward.buffer_bytes",
		func(c *Config) bool { return c.Forward.MaxPayload <= c.Forward.BufferBytes },
		func(c *Config) string {
			return fmt.Sprintf("at most forward.buffer_bytes, which is %s", formatSize(c.Forward.BufferBytes))
		},
	},
	{
		"forward.max_payload", "forward.max_bytes",
		func(c *Config) bool { return c.Forward.MaxPayload <= c.Forward.MaxBytes },
		func(c *Config) string {
			return fmt.Sprintf("at most forward.max_bytes, which is %s", formatSize(c.Forward.MaxBytes))
		},
	},
	{
		"replay.backoff", "replay.backoff_max",
		func(c *Config) bool { return c.Replay.Backoff <= c.Replay.BackoffMax },
		func(c *Config) string {
			return fmt.Sprintf("at most replay.backoff_max, which is %v", c.Replay.BackoffMax)
		},
	},
	{
		"replay.max_in_hand", "replay.concurrency",
		func(c *Config) bool { return c.Replay.MaxInHand >= c.Replay.Concurrency },
		func(c *Config) string {
			return fmt.Sprintf("at least replay.concurrency, which is %d", c.Replay.Concurrency)
		},
	},
}

func hide(text string) string {
	if text == "" {
		return ""
	}
	return "(hidden)"
}

// showURL hides what a URL has before an @.
func showURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 {
		text = scheme + "://xxxxx@" + rest[at+1:]
	} else if strings.Contains(text, "@") {
		return hide(text)
	}
	return fmt.Sprintf("%.200q", text)
}

// envName returns the variable of a path.
func envName(path string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func isKind(name string) error {
	for _, kind := range cache.KindNames() {
		if name == kind {
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind", name)
}

// bareToken returns a token without the "Bot " that REST wants before it.
func bareToken(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > 4 && strings.EqualFold(text[:4], "Bot ") {
		text = strings.TrimSpace(text[4:])
	}
	return text
}
