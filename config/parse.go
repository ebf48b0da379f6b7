package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

func integer[T int | int64](into *T, text string, least, most int64) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return errBad
	}
	*into = T(n)
	return nil
}

// autoInt is integer, with auto for 0.
func autoInt(into *int, text string, least, most int64) error {
	if text == "auto" {
		*into = 0
		return nil
	}
	return integer(into, text, least, most)
}

func duration(into *time.Duration, text string, least time.Duration) error {
	d, err := time.ParseDuration(text)
	if err != nil && text != "" && strings.Trim(text, "0123456789.") == "" {
		return errors.New("it has no unit (s, m, h)")
	}
	if err != nil || d < least {
		return errBad
	}
	*into = d
	return nil
}

var units = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}

// size reads a number of bytes, with a unit or without: 512MiB, 500 MB, 1048576.
// As in Kubernetes and Docker K is KiB; kB is 1000.
func size(into *int64, text string, least, most int64) error {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	unit, known := units[strings.ToUpper(strings.TrimSpace(text[end:]))]
	if err != nil || !known || n > (1<<63-1)/unit || n*unit < least || n*unit > most {
		return errBad
	}
	*into = n * unit
	return nil
}

func formatSize(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

func oneOf(into *string, text string, allowed ...string) error {
	if !slices.Contains(allowed, text) {
		return errBad
	}
	*into = text
	return nil
}

// list reads items separated by commas. check may be nil; all it refuses are
// reported.
func list(into *[]string, text string, check func(string) error) error {
	var (
		items []string
		errs  []string
	)
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if check != nil {
			if err := check(item); err != nil {
				errs = append(errs, err.Error())
				continue
			}
		}
		if !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	if len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	*into = items
	return nil
}

// word reads a name that becomes part of Redis keys: letters, digits, and some
// characters more. Braces would move the keys' hash tag.
func word(into *string, text, more string) error {
	if len(text) == 0 || len(text) > 64 {
		return errBad
	}
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(more, r) {
			return fmt.Errorf("%q is not allowed in it", r)
		}
	}
	*into = text
	return nil
}

func hostPort(into *string, text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil || strings.ContainsAny(text, " \t") {
		return errBad
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	*into = text
	return nil
}

func parseAPIURL(into *string, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return errBad
	}
	*into = strings.TrimRight(text, "/")
	return nil
}

// intents are Discord's names for the bits, and older names of some.
//
// Source: https://discord.com/developers/docs/events/gateway#list-of-intents
var intents = map[string]int{
	"GUILDS":                        1 << 0,
	"GUILD_MEMBERS":                 1 << 1,
	"GUILD_MODERATION":              1 << 2,
	"GUILD_BANS":                    1 << 2,
	"GUILD_EXPRESSIONS":             1 << 3,
	"GUILD_EMOJIS_AND_STICKERS":     1 << 3,
	"GUILD_INTEGRATIONS":            1 << 4,
	"GUILD_WEBHOOKS":                1 << 5,
	"GUILD_INVITES":                 1 << 6,
	"GUILD_VOICE_STATES":            1 << 7,
	"GUILD_PRESENCES":               1 << 8,
	"GUILD_MESSAGES":                1 << 9,
	"GUILD_MESSAGE_REACTIONS":       1 << 10,
	"GUILD_MESSAGE_TYPING":          1 << 11,
	"DIRECT_MESSAGES":               1 << 12,
	"DIRECT_MESSAGE_REACTIONS":      1 << 13,
	"DIRECT_MESSAGE_TYPING":         1 << 14,
	"MESSAGE_CONTENT":               1 << 15,
	"GUILD_SCHEDULED_EVENTS":        1 << 16,
	"AUTO_MODERATION_CONFIGURATION": 1 << 20,
	"AUTO_MODERATION_EXECUTION":     1 << 21,
	"GUILD_MESSAGE_POLLS":           1 << 24,
	"DIRECT_MESSAGE_POLLS":          1 << 25,
}

// privilegedIntents need Discord's approval.
const privilegedIntents = 1<<1 | 1<<8 | 1<<15

func allIntents() (sum int) {
	for _, bit := range intents {
		sum |= bit
	}
	return sum
}

func parseIntents(into *int, text string) error {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 || n >= 1<<53 {
			return errBad
		}
		*into = int(n)
		return nil
	}
	var (
		sum     int
		unknown []string
	)
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		bit, known := intents[strings.ToUpper(name)]
		switch {
		case known:
			sum |= bit
		case strings.EqualFold(name, "all"):
			sum |= allIntents()
		case strings.EqualFold(name, "unprivileged"):
			sum |= allIntents() &^ privilegedIntents
		case name == "":
		default:
			unknown = append(unknown, strconv.Quote(name)+" is no intent, "+nearest(strings.ToUpper(name), sortedKeys(intents))+" is")
		}
	}
	if len(unknown) > 0 {
		return errors.New(strings.Join(unknown, "; "))
	}
	if sum == 0 {
		return errors.New("it names none (0 asks for none)")
	}
	*into = sum
	return nil
}

func parseShardIDs(into *[]int, text string) error {
	var ids []int
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(strings.TrimSpace(from))
		last, err2 := strconv.Atoi(strings.TrimSpace(to))
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= maxShards {
			return fmt.Errorf("%q is no shard and no range of shards", part)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	*into = slices.Compact(ids)
	return nil
}

func parsePresence(into *json.RawMessage, text string) error {
	if text == "" {
		*into = nil
		return nil
	}
	if !rawjson.Valid([]byte(text)) || !rawjson.IsObject([]byte(text)) {
		return errBad
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return errBad
	}
	*into = b.Bytes()
	return nil
}

func parseStart(into *string, text string) error {
	if text != "0" && text != "$" && !isStreamID(text) {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return errBad
		}
	}
	*into = text
	return nil
}

// isStreamID reports whether text is <ms>-<seq>. A lone number is none here: it
// could be meant in seconds.
func isStreamID(text string) bool {
	ms, seq, ok := strings.Cut(text, "-")
	if !ok {
		return false
	}
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	return err1 == nil && err2 == nil
}

// parseExpire reads what expires when: TYPING_START=10s,orders.created=1h.
func parseExpire(into *map[string]time.Duration, text string) error {
	all := make(map[string]time.Duration)
	var errs []string
	bad := func(format string, args ...any) { errs = append(errs, fmt.Sprintf(format, args...)) }
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, after, given := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		var d time.Duration
		if err := duration(&d, strings.TrimSpace(after), 0); !given {
			bad("%q is no type and duration", item)
		} else if err != nil {
			bad("%q is no duration from 0", after)
		}
		if proper, ok := dispatch.TypeOf(name); ok {
			bad("%q is to be written %s", name, proper)
		} else if !dispatch.IsType(name) && dispatch.ValidSubject(name) != nil {
			bad("%q is no type and no custom event", name)
		}
		if _, twice := all[name]; twice {
			bad("%s is there twice", name)
		}
		all[name] = d
	}
	if len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	*into = all
	return nil
}

func parseLevel(into *slog.Level, text string) error {
	level, known := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[strings.ToLower(text)]
	if !known {
		return errBad
	}
	*into = level
	return nil
}
