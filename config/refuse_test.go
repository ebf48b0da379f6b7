package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/config"
)

// secret must never be in an error.
const secret = "hunter2"

func refused(t *testing.T, args ...string) *config.UsageError {
	t.Helper()
	c, err := config.Load(args)
	var usage *config.UsageError
	if !errors.As(err, &usage) {
		t.Fatalf("Load(%q) = %+v, %v, want a *UsageError", args, c, err)
	}
	if c != nil {
		t.Errorf("Load returned a configuration with its error")
	}
	if usage.ExitCode() != 2 {
		t.Errorf("ExitCode() = %d, want 2", usage.ExitCode())
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells a secret:\n%v", err)
	}
	return usage
}

// All values that a setting refuses, each alone: the fault must be at the
// setting, show the value, and say what is allowed.
func TestRefusedValues(t *testing.T) {
	for path, values := range map[string][]string{
		"discord.api_url":            {"discord.com", "ftp://discord.com", "http://", "https://x/?a=b", "://"},
		"discord.intents":            {"GUILD_MESAGES", "-1", "9007199254740992", ",", "GUILDS;GUILD_MEMBERS"},
		"discord.shards":             {"0", "-1", "many", "65537", "1.5", "AUTO"},
		"discord.shard_ids":          {"a", "3-1", "-1", "0-99999", "1-", "0..3", "1-2-3"},
		"discord.compress":           {"zstd-stream", "ZLIB", "yes"},
		"discord.presence":           {"online", "[]", "{", `"online"`, "null"},
		"gateway.max_frame_bytes":    {"0", "-1", "1KiB", "2GiB", "64 furlongs", "MiB", "1.5MiB", "99999999999GiB"},
		"redis.url":                  {"localhost:6379", "http://localhost", "redis://", "redis://h/x", "redis+sentinel://h", "redis://h?max_retries=3", "EMBEDDED"},
		"redis.prefix":               {"{sluice}", "a b", "a*", "a?", "a[b]", "a/b", "naïve", strings.Repeat("x", 65), "a\nb"},
		"redis.embedded_addr":        {"localhost", "localhost:redis", "localhost:99999", "1:2:3"},
		"cache.off":                  {"messages", "message,Member", "*"},
		"cache.memory_bytes":         {"0", "1000", "lots"},
		"cache.message_age":          {"0", "10ms", "60", "-1h", "1 day"},
		"cache.messages_per_channel": {"0", "-5", "1e3", "2000000"},
		"forward.events":             {"message..create", ">.create", "a.b c", "message.*,x.>.y"},
		"forward.lanes":              {"0", "1025", "Auto"},
		"forward.keep":               {"0s", "soon"},
		"forward.max_length":         {"999", "0", "-1", "400k"},
		"forward.max_bytes":          {"1", "512 MoB"},
		"forward.max_payload":        {"1KiB", "1GiB"},
		"forward.buffer_bytes":       {"100", "x"},
		"forward.codec":              {"JSON", "protobuf"},
		"replay.group":               {"a b", "a:b", "a/b", "{a}", strings.Repeat("x", 65)},
		"replay.start":               {"yesterday", "12", "1700000000000", "1-2-3", "2026-01-02", "1-x", "-1"},
		"replay.concurrency":         {"0", "x"},
		"replay.max_in_hand":         {"0"},
		"replay.max_deliveries":      {"0", "1001"},
		"replay.backoff":             {"0", "1", "-1s"},
		"replay.backoff_max":         {"0s", "60"},
		"replay.listener_timeout":    {"0s", "never"},
		"replay.lease":               {"0s", "999ms", "5"},
		"replay.drain_timeout":       {"0s"},
		"replay.dead_length":         {"0", "2147483648"},
		"replay.dead_age":            {"1s", "14d"},
		"replay.expire":              {"10s", "TYPING_START", "TYPING_START=soon", "TYPING_START=-1s", "typing.start=1s", "a b=1s", "X=1s,X=2s", "TYPING_START=10"},
		"forward.abandon_after":      {"59s", "never", "60"},
		"log.level":                  {"trace", "0"},
		"log.format":                 {"xml"},
		"admin.addr":                 {"9090", "localhost", "localhost:http"},
	} {
		for _, value := range values {
			t.Run(path+"="+value, func(t *testing.T) {
				here(t)
				usage := refused(t, "--"+path+"="+value)
				if len(usage.Faults) != 1 {
					t.Fatalf("there are %d faults, want 1:\n%v", len(usage.Faults), usage)
				}
				f := usage.Faults[0]
				if f.Path != path || f.Want == "" || f.Source != "--"+path || f.Value == "" {
					t.Errorf("the fault is %+v", f)
				}
			})
		}
	}
	for _, value := range []string{"two words", "line\nbreak", "smörgås"} {
		t.Run("discord.token="+value, func(t *testing.T) {
			here(t)
			t.Setenv("SLUICE_DISCORD_TOKEN", value+secret)
			usage := refused(t)
			want := config.Fault{Path: "discord.token", Value: "(hidden)", Source: "SLUICE_DISCORD_TOKEN", Want: `a bot token, with or without "Bot "`}
			if diff := cmp.Diff([]config.Fault{want}, usage.Faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedPairs(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		path string
		want string
	}{
		"backoff":              {[]string{"--replay.backoff=2m"}, "replay.backoff", "at most replay.backoff_max, which is 1m0s"},
		"backoff_max":          {[]string{"--replay.backoff_max=10ms"}, "replay.backoff", "at most replay.backoff_max, which is 10ms"},
		"shard ids":            {[]string{"--discord.shards=4", "--discord.shard_ids=0-4"}, "discord.shard_ids", "ids below discord.shards, which is 4"},
		"in hand":              {[]string{"--replay.max_in_hand=10"}, "replay.max_in_hand", "at least replay.concurrency, which is 64"},
		"payload over buffer":  {[]string{"--forward.buffer_bytes=2MiB"}, "forward.max_payload", "at most forward.buffer_bytes, which is 2MiB"},
		"payload over streams": {[]string{"--forward.max_bytes=3000001", "--forward.max_payload=3000002"}, "forward.max_payload", "at most forward.max_bytes, which is 3000001 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			here(t)
			usage := refused(t, tc.args...)
			if len(usage.Faults) != 1 || usage.Faults[0].Path != tc.path || usage.Faults[0].Want != tc.want {
				t.Errorf("faults are %+v, want %s: %s", usage.Faults, tc.path, tc.want)
			}
		})
	}
	t.Run("not while a member of the pair is bad itself", func(t *testing.T) {
		here(t)
		if usage := refused(t, "--replay.backoff=2m", "--replay.backoff_max=x"); len(usage.Faults) != 1 {
			t.Errorf("faults are %+v, want one", usage.Faults)
		}
	})
	t.Run("shard ids of an unknown number of shards pass", func(t *testing.T) {
		here(t)
		if _, err := config.Load([]string{"--discord.shard_ids=0-15"}); err != nil {
			t.Error(err)
		}
	})
}

// Everything that is wrong, from every source, is in one error.
func TestAllFaultsAtOnce(t *testing.T) {
	here(t)
	write(t, "sluice.yaml", `
discord:
  token: `+secret+`
  tokn: `+secret+`
  token_file: gone
  intents: [GUILDS, {a: b}]
redis: redis://:`+secret+`@host
cache: {memory_bytes: lots, off: [message, users, nicknames]}
forwards: {keep: 1m}
replay:
  lease: 500ms
  max_deliveries: true
log: {level: {a: b}}
`)
	t.Setenv("SLUICE_REDIS_URL", "redis://:"+secret+"@host/zero")
	t.Setenv("SLUICE_REPLAY_BACKOFF", "2m")
	t.Setenv("SLUICE_FORWARD_EVENTS", "a..b,message.create,>.x")
	usage := refused(t, "--replay.group=a b", "--replay.gruop", secret, "-x", "--discord.token="+secret, "--log.format", "xml", "start", "--admin.addr")
	var got []string
	for _, f := range usage.Faults {
		got = append(got, f.String())
	}
	want := []string{
		`--replay.gruop: there is no such flag: want --replay.group?`,
		`-x: there is no such flag: want --config?`,
		`--discord.token: it is not taken from the command line, which other users of the machine can read: want SLUICE_DISCORD_TOKEN, or discord.token_file`,
		`--admin.addr: want a value`,
		`argument "start": want flags only (--name=value)`,
		`discord.tokn (sluice.yaml): there is no such setting: want discord.token?`,
		`forwards.keep (sluice.yaml): there is no such setting: want forward.keep?`,
		`redis (sluice.yaml): it is a section: want settings below it: redis.url, redis.prefix, redis.embedded_addr`,
		`discord.token_file = "gone" (sluice.yaml): no such file or directory: want the path of a file that holds the token`,
		`discord.intents (sluice.yaml): a value is wanted, not a mapping: want names of intents (GUILD_MESSAGES), unprivileged or all, separated by commas, or a number`,
		`redis.url = redis://xxxxx@host/zero (SLUICE_REDIS_URL): invalid database number: "zero": want redis://[user:password@]host[:port][/db], …`,
		`cache.off = "message,users,nicknames" (sluice.yaml): "users" is not a kind; "nicknames" is not a kind: want kinds, separated by commas: …`,
		`cache.memory_bytes = "lots" (sluice.yaml): want a size from 1MiB`,
		`forward.events = "a..b,message.create,>.x" (SLUICE_FORWARD_EVENTS): bad pattern "a..b": …; bad pattern ">.x": …: want patterns, separated by commas (message.*, GUILD_CREATE)`,
		`replay.group = "a b" (--replay.group): ' ' is not allowed in it: want 1 to 64 letters, digits or characters of . _ -`,
		`replay.max_deliveries = "true" (sluice.yaml): want a number from 1 to 1000`,
		`replay.lease = "500ms" (sluice.yaml): want a duration from 1s`,
		`log.level (sluice.yaml): a value is wanted, not a mapping: want debug, info, warn or error`,
		`log.format = "xml" (--log.format): want text or json`,
		`replay.backoff = "2m" (SLUICE_REPLAY_BACKOFF): want at most replay.backoff_max, which is 1m0s`,
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !like(got[i], want[i]) {
			t.Errorf("fault %d is\n\t%s\nwant\n\t%s", i, got[i], want[i])
		}
	}
	if text := usage.Error(); strings.Count(text, "\n") != len(got) || !strings.HasPrefix(text, "config: 20 settings can't be used:\n") {
		t.Errorf("Error() is\n%s", text)
	}
}

// like compares texts; … in want stands for anything.
func like(got, want string) bool {
	parts := strings.Split(want, "…")
	if !strings.HasPrefix(got, parts[0]) || !strings.HasSuffix(got, parts[len(parts)-1]) {
		return false
	}
	for _, part := range parts {
		_, after, ok := strings.Cut(got, part)
		if !ok {
			return false
		}
		got = after
	}
	return true
}

func TestRefusedFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		args []string
		want string // of the one fault
	}{
		"named and missing":  {args: []string{"--config=other.yaml"}, want: `--config = "other.yaml": no such file or directory: want a YAML file that can be read`},
		"a directory":        {args: []string{"--config=."}, want: `--config = ".": is a directory: want a YAML file that can be read`},
		"no YAML":            {file: "discord: {token: " + secret, want: `sluice.yaml: line 1: …: want YAML as in docs/configuration.md`},
		"no mapping":         {file: secret, want: `sluice.yaml: it is no mapping of sections: want YAML as in docs/configuration.md`},
		"a list":             {file: "- " + secret, want: `sluice.yaml: it is no mapping of sections: want YAML as in docs/configuration.md`},
		"a setting twice":    {file: "log: {level: info}\nlog: {level: warn}\n", want: `sluice.yaml: …already defined…: want YAML as in docs/configuration.md`},
		"unknown at the top": {file: "token: " + secret, want: `token (sluice.yaml): there is no such setting: want …?`},
		"token file is dir":  {file: "discord: {token_file: .}", want: `discord.token_file = "." (sluice.yaml): is a directory: want the path of a file that holds the token`},
		"token file empty":   {file: "discord: {token_file: empty}", want: `discord.token_file = "empty" (sluice.yaml): it is empty: want the path of a file that holds the token`},
	} {
		t.Run(name, func(t *testing.T) {
			here(t)
			write(t, "empty", "\n")
			if tc.file != "" {
				write(t, "sluice.yaml", tc.file)
			}
			usage := refused(t, tc.args...)
			if len(usage.Faults) != 1 || !like(usage.Faults[0].String(), tc.want) {
				t.Errorf("faults are\n%v\nwant\n  %s", usage, tc.want)
			}
		})
	}
}

func TestUnknownVariablesAreWarnings(t *testing.T) {
	here(t)
	t.Setenv("SLUICE_REDIS_ULR", secret)
	t.Setenv("SLUICE_PORT_6379_TCP", "tcp://10.0.0.1:6379")
	t.Setenv("SLUICE_LOG_LEVEL", "warn")
	c, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(c.Warnings, "\n")
	if len(c.Warnings) != 2 || !strings.Contains(all, "SLUICE_REDIS_ULR is no setting; the nearest is SLUICE_REDIS_URL") ||
		!strings.Contains(all, "SLUICE_PORT_6379_TCP") || strings.Contains(all, secret) {
		t.Errorf("warnings:\n%s", all)
	}
}

func TestHelp(t *testing.T) {
	here(t)
	t.Setenv("SLUICE_LOG_LEVEL", "nonsense") // help comes first
	for _, args := range [][]string{{"-h"}, {"--help"}, {"--log.format=json", "--help"}} {
		if _, err := config.Load(args); !errors.Is(err, config.ErrHelp) {
			t.Errorf("Load(%q) = %v, want ErrHelp", args, err)
		}
	}
	text := config.Usage()
	for _, k := range config.Keys() {
		if strings.Contains(text, "--"+k.Path+" ") != k.Flag {
			t.Errorf("Usage: %s is %v a flag", k.Path, k.Flag)
		}
	}
	if strings.Contains(text, "`") || strings.Contains(text, "](") {
		t.Errorf("Usage has markup in it:\n%s", text)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1},
		{"abc", "ac", 1}, {"abc", "xabc", 1}, {"redis.ulr", "redis.url", 1}, {"kitten", "sitting", 3},
	} {
		if got := config.Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

// What foreign texts do: never a panic, never a secret that is shown.
func FuzzFile(f *testing.F) {
	f.Add("discord: {token: x, presence: {a: [1]}}")
	f.Add("a: [b, {c: d}]\n? [x]\n: y\n")
	f.Add("redis: {url: [1, 2], prefix: 1.5}\nlog: {level: 2026-01-02}\n")
	f.Add("1: 2\n~: 3\ntrue: x\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := dir + "/sluice.yaml"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{"--config", path})
		var usage *config.UsageError
		if (c == nil) == (err == nil) || err != nil && !errors.As(err, &usage) {
			t.Fatalf("Load = %v, %v", c, err)
		}
	})
}
