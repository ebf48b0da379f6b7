package config_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/replay"
)

// defaults is what an empty configuration means, written out once more so that a
// change of a default is a change of this test.
func defaults() *config.Config {
	return &config.Config{
		Discord: config.Discord{
			APIURL:   "https://discord.com/api/v10",
			Intents:  1<<0 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<9 | 1<<10 | 1<<11 | 1<<12 | 1<<13 | 1<<14 | 1<<16 | 1<<20 | 1<<21 | 1<<24 | 1<<25,
			Compress: "zlib-stream",
		},
		Gateway: config.Gateway{MaxFrameBytes: 64 << 20},
		Redis:   config.Redis{URL: "redis://127.0.0.1:6379/0", Prefix: "sluice", EmbeddedAddr: "127.0.0.1:6379"},
		Cache:   config.Cache{MemoryBytes: 256 << 20, MessageAge: time.Hour, MessagesPerChannel: 200},
		Forward: config.Forward{
			Events: []string{">"}, Keep: 10 * time.Minute, AbandonAfter: 24 * time.Hour, MaxLength: 400000, MaxBytes: 512 << 20, MaxPayload: 4 << 20,
			BufferBytes: 64 << 20, Codec: "json",
		},
		Replay: config.Replay{
			Group: "workers", Start: "0", Concurrency: 64, MaxInHand: 4096, MaxDeliveries: 5,
			Backoff: time.Second, BackoffMax: time.Minute, ListenerTimeout: 30 * time.Second,
			Lease: 5 * time.Second, DrainTimeout: 25 * time.Second, DeadLength: 10000, DeadAge: 336 * time.Hour,
			Expire: map[string]time.Duration{"INTERACTION_CREATE": 3 * time.Second, "TYPING_START": 10 * time.Second},
		},
		Log: config.Log{Level: slog.LevelInfo, Format: "text"},
	}
}

// here moves the test into an empty directory with an environment without
// settings. It excludes t.Parallel.
func here(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "SLUICE_") || name == "DISCORD_TOKEN" {
			t.Setenv(name, "") // so that it is put back
			os.Unsetenv(name)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDefaults(t *testing.T) {
	here(t)
	got, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestEverySettingFromEverySource(t *testing.T) {
	const yaml = `
discord:
  token: Bot abc.def.ghi
  api_url: http://localhost:8080/api/v10/
  intents: [GUILDS, guild_messages, MESSAGE_CONTENT]
  shards: 64
  shard_ids: [0-3, 32, 2]
  compress: none
  presence:
    status: online
    since: null
    afk: false
    activities: [{name: sluice, type: 3}]
gateway: {max_frame_bytes: 8MiB}
redis:
  url: rediss://bot:secret@redis.example:6380/2
  prefix: prod-eu
  embedded_addr: ":7000"
cache:
  off: [presence, voice_state]
  memory_bytes: 1073741824
  message_age: 90m
  messages_per_channel: 50
forward:
  events: [message.*, GUILD_CREATE, "orders.>"]
  lanes: 4
  keep: 1m30s
  abandon_after: 2h
  max_length: 100_000
  max_bytes: 1GiB
  max_payload: 512 KiB
  buffer_bytes: 16MB
  codec: msgpack
replay:
  group: images
  start: 2026-01-02T15:04:05Z
  concurrency: 8
  max_in_hand: 100
  max_deliveries: 3
  backoff: 250ms
  backoff_max: 10s
  listener_timeout: 1m
  lease: 2s
  drain_timeout: 5s
  dead_length: 77
  dead_age: 24h
  expire: [TYPING_START=0, orders.created=1h]
  off: [welcome, edit-log]
log: {level: debug, format: json}
admin: {addr: "127.0.0.1:9090"}
`
	want := &config.Config{
		Discord: config.Discord{
			Token: "abc.def.ghi", APIURL: "http://localhost:8080/api/v10", Intents: 1<<0 | 1<<9 | 1<<15,
			Shards: 64, ShardIDs: []int{0, 1, 2, 3, 32}, Compress: "none",
			Presence: json.RawMessage(`{"activities":[{"name":"sluice","type":3}],"afk":false,"since":null,"status":"online"}`),
		},
		Gateway: config.Gateway{MaxFrameBytes: 8 << 20},
		Redis:   config.Redis{URL: "rediss://bot:secret@redis.example:6380/2", Prefix: "prod-eu", EmbeddedAddr: ":7000"},
		Cache:   config.Cache{Off: []string{"presence", "voice_state"}, MemoryBytes: 1 << 30, MessageAge: 90 * time.Minute, MessagesPerChannel: 50},
		Forward: config.Forward{
			Events: []string{"message.*", "GUILD_CREATE", "orders.>"}, Lanes: 4, Keep: 90 * time.Second, AbandonAfter: 2 * time.Hour, MaxLength: 100000,
			MaxBytes: 1 << 30, MaxPayload: 512 << 10, BufferBytes: 16e6, Codec: "msgpack",
		},
		Replay: config.Replay{
			Group: "images", Start: "2026-01-02T15:04:05Z", Concurrency: 8, MaxInHand: 100, MaxDeliveries: 3,
			Backoff: 250 * time.Millisecond, BackoffMax: 10 * time.Second, ListenerTimeout: time.Minute,
			Lease: 2 * time.Second, DrainTimeout: 5 * time.Second, DeadLength: 77, DeadAge: 24 * time.Hour, Expire: map[string]time.Duration{"TYPING_START": 0, "orders.created": time.Hour},
			Off: []string{"welcome", "edit-log"},
		},
		Log:   config.Log{Level: slog.LevelDebug, Format: "json"},
		Admin: config.Admin{Addr: "127.0.0.1:9090"},
	}
	// The same as texts, which is what variables and flags are.
	texts := map[string]string{
		"discord.token": "Bot abc.def.ghi", "discord.api_url": "http://localhost:8080/api/v10/",
		"discord.intents": "GUILDS, guild_messages,MESSAGE_CONTENT", "discord.shards": "64", "discord.shard_ids": "0-3,32,2",
		"discord.compress":        "none",
		"discord.presence":        `{"activities":[{"name":"sluice","type":3}],"afk":false,"since":null, "status":"online"}`,
		"gateway.max_frame_bytes": "8MiB",
		"redis.url":               "rediss://bot:secret@redis.example:6380/2", "redis.prefix": "prod-eu", "redis.embedded_addr": ":7000",
		"cache.off": "presence,voice_state", "cache.memory_bytes": "1073741824", "cache.message_age": "90m", "cache.messages_per_channel": "50",
		"forward.events": "message.*,GUILD_CREATE,orders.>", "forward.lanes": "4", "forward.keep": "1m30s", "forward.abandon_after": "2h", "forward.max_length": "100000",
		"forward.max_bytes": "1GiB", "forward.max_payload": "512KiB", "forward.buffer_bytes": "16MB", "forward.codec": "msgpack",
		"replay.group": "images", "replay.start": "2026-01-02T15:04:05Z", "replay.concurrency": "8", "replay.max_in_hand": "100",
		"replay.max_deliveries": "3", "replay.backoff": "250ms", "replay.backoff_max": "10s", "replay.listener_timeout": "1m",
		"replay.lease": "2s", "replay.drain_timeout": "5s", "replay.dead_length": "77", "replay.dead_age": "24h", "replay.expire": "TYPING_START=0, orders.created=1h",
		"replay.off": "welcome,edit-log", "log.level": "debug", "log.format": "json", "admin.addr": "127.0.0.1:9090",
	}
	if len(texts) != len(config.Keys())-1 { // discord.token_file has a test of its own
		t.Errorf("the test has %d of %d settings", len(texts), len(config.Keys()))
	}
	check := func(t *testing.T, args ...string) {
		t.Helper()
		got, err := config.Load(args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(config.Config{}, "File", "Warnings")); diff != "" {
			t.Errorf("Load (-want +got):\n%s", diff)
		}
		if len(got.Warnings) > 0 {
			t.Errorf("Load warns: %q", got.Warnings)
		}
	}
	t.Run("file that is there", func(t *testing.T) {
		here(t)
		write(t, "sluice.yaml", yaml)
		check(t)
	})
	t.Run("file that is named", func(t *testing.T) {
		here(t)
		write(t, "other", yaml)
		write(t, "sluice.yaml", "replay: {group: wrong}")
		check(t, "--config", "other")
	})
	t.Run("file with dotted paths", func(t *testing.T) {
		here(t)
		write(t, "sluice.yaml", "")
		var b strings.Builder
		for path, text := range texts {
			b.WriteString(path + ": '" + text + "'\n")
		}
		write(t, "sluice.yaml", b.String())
		check(t)
	})
	t.Run("variables over the file", func(t *testing.T) {
		here(t)
		write(t, "sluice.yaml", "replay: {group: wrong, lease: never}\ndiscord: {token: wrong}\n")
		for path, text := range texts {
			t.Setenv("SLUICE_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_")), text)
		}
		check(t)
	})
	t.Run("flags over variables", func(t *testing.T) {
		here(t)
		var args []string
		for path, text := range texts {
			t.Setenv("SLUICE_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_")), "wrong")
			if path != "discord.token" {
				args = append(args, "--"+path+"="+text)
			}
		}
		t.Setenv("SLUICE_DISCORD_TOKEN", texts["discord.token"])
		check(t, args...)
	})
}

func TestToken(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		file string // sluice.yaml
		want string
	}{
		"none":                {},
		"file":                {file: "discord: {token: from.the.file}", want: "from.the.file"},
		"token file":          {file: "discord: {token: no, token_file: secret}", want: "from.the.secret"},
		"token file by name":  {env: map[string]string{"SLUICE_DISCORD_TOKEN_FILE": "secret"}, want: "from.the.secret"},
		"the usual variable":  {env: map[string]string{"DISCORD_TOKEN": "Bot usual"}, file: "discord: {token: no, token_file: secret}", want: "usual"},
		"our variable":        {env: map[string]string{"DISCORD_TOKEN": "no", "SLUICE_DISCORD_TOKEN": "bot ours\n"}, file: "discord: {token_file: gone}", want: "ours"},
		"empty variables":     {env: map[string]string{"DISCORD_TOKEN": "", "SLUICE_DISCORD_TOKEN": ""}, file: "discord: {token: from.the.file}", want: "from.the.file"},
		"null in the file":    {file: "discord: {token: }"},
		"nothing in the file": {file: "discord:\n"},
	} {
		t.Run(name, func(t *testing.T) {
			here(t)
			write(t, "secret", "  Bot from.the.secret\n")
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			if tc.file != "" {
				write(t, "sluice.yaml", tc.file)
			}
			got, err := config.Load(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Discord.Token != tc.want {
				t.Errorf("the token is %q, want %q", got.Discord.Token, tc.want)
			}
			var usage *config.UsageError
			if err := got.RequireToken(); (err != nil) != (tc.want == "") || err != nil && !errors.As(err, &usage) {
				t.Errorf("RequireToken = %v", err)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"msg":"seen"`, "text": "msg=seen"} {
		var b strings.Builder
		logger := config.Log{Level: slog.LevelWarn, Format: format}.Logger(&b)
		logger.Info("hidden")
		logger.Warn("seen")
		if got := b.String(); !strings.Contains(got, want) || strings.Contains(got, "hidden") {
			t.Errorf("the %s log is %q, want %q alone", format, got, want)
		}
	}
}

func TestPackageConfigs(t *testing.T) {
	here(t)
	write(t, "sluice.yaml", "discord: {token: tok, shard_ids: '1,2', shards: 4, presence: {status: idle}}\nforward: {max_payload: 1MiB}\ncache: {off: presence}\nreplay: {off: welcome}")
	c, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	g := c.GatewayConfig()
	if g.Token != "tok" || g.Intents != c.Discord.Intents || g.Compress != "zlib-stream" || string(g.Presence) != `{"status":"idle"}` || g.MaxFrameBytes != 64<<20 {
		t.Errorf("GatewayConfig = %+v", g)
	}
	f := c.ForwardConfig()
	if f.Prefix != "sluice" || !cmp.Equal(f.ShardIDs, []int{1, 2}) || f.MaxPayload != 1<<20 || f.BufferBytes != 64<<20 ||
		f.MaxLength != 400000 || f.MaxBytes != 512<<20 || f.Keep != 10*time.Minute || f.AbandonAfter != 24*time.Hour || f.Codec != "json" || !cmp.Equal(f.Events, []string{">"}) {
		t.Errorf("ForwardConfig = %+v", f)
	}
	wantReplay := replay.Config{
		Prefix: "sluice", Group: "workers", Start: "0", Concurrency: 64, MaxInHand: 4096, MaxDeliveries: 5,
		Backoff: time.Second, BackoffMax: time.Minute, ListenerTimeout: 30 * time.Second, Lease: 5 * time.Second,
		DrainTimeout: 25 * time.Second, DeadLength: 10000, DeadAge: 336 * time.Hour, Off: []string{"welcome"},
		Expire: map[string]time.Duration{"INTERACTION_CREATE": 3 * time.Second, "TYPING_START": 10 * time.Second},
		Events: []string{">"},
	}
	if diff := cmp.Diff(wantReplay, c.ReplayConfig()); diff != "" {
		t.Errorf("ReplayConfig (-want +got):\n%s", diff)
	}
	if k := f.Cache; !cmp.Equal(k.Off, []string{"presence"}) || k.MemoryBytes != 256<<20 || k.MessageAge != time.Hour || k.MessagesPerChannel != 200 {
		t.Errorf("CacheConfig = %+v", k)
	}
}

func TestFlagsOfAnotherProgram(t *testing.T) {
	here(t)
	write(t, filepath.Join("conf.yaml"), "replay: {group: images}")
	flags := config.Flags()
	follow := flags.Bool("follow", false, "not a setting")
	if err := flags.Parse([]string{"--follow", "--config=conf.yaml", "--redis.prefix=other", "argument"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.FromFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	if !*follow || c.Replay.Group != "images" || c.Redis.Prefix != "other" || c.File != "conf.yaml" {
		t.Errorf("FromFlags = group %q, prefix %q, file %q", c.Replay.Group, c.Redis.Prefix, c.File)
	}
}
