package redisclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The oldest Redis that has every command Sluice uses (XAUTOCLAIM, SET … GET).
const (
	OldestMajor = 6
	OldestMinor = 2
)

// ErrUnsuitable is wrapped by Check's error for a server that can't be used as
// it is. The text names every reason, and the setting to change.
var ErrUnsuitable = errors.New("redis: the server can't be used")

// The wait between two tries of Check doubles between these, less up to half at
// random.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Check waits until the server answers and can be written to, then returns an
// error if it must not be used: it is older than 6.2, it may evict keys (the
// streams and session records are keys), or it is part of a cluster and the
// client is not for one. On a cluster every master is checked. A server without
// persistence is used, with a warning.
//
// That the server can't be reached is logged once, and once when it is reached;
// a wrong password and the like end the waiting at once. The error is ctx's if
// that ends first. A nil logger stands for slog.Default().
func Check(ctx context.Context, client redis.UniversalClient, logger *slog.Logger) error {
	if logger == nil {
		logger = slog.Default()
	}
	begun := time.Now()
	wait := firstWait
	for try := 1; ; try++ {
		err := once(ctx, client, logger)
		if err == nil {
			if try > 1 {
				logger.InfoContext(ctx, "redis is reachable", "after", time.Since(begun).Round(time.Millisecond))
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrUnsuitable) {
			return err
		}
		if try == 1 {
			logger.WarnContext(ctx, "redis is not reachable, waiting for it", "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait - rand.N(wait/2)):
		}
		wait = min(2*wait, lastWait)
	}
}

// once asks every server once. An error that does not wrap ErrUnsuitable may go
// away.
func once(ctx context.Context, client redis.UniversalClient, logger *slog.Logger) error {
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		return askOne(ctx, client, false, logger)
	}
	var (
		mu   sync.Mutex // guards errs, masters
		errs []error
		n    int
	)
	err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := askOne(ctx, master, true, logger)
		mu.Lock()
		defer mu.Unlock()
		n++
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", master.Options().Addr, err))
		}
		return nil
	})
	if err != nil {
		return classify(err)
	}
	if n == 0 {
		return errors.New("the cluster has no master")
	}
	return errors.Join(errs...)
}

func askOne(ctx context.Context, client redis.Cmdable, inCluster bool, logger *slog.Logger) error {
	text, err := client.Info(ctx).Result()
	if err != nil {
		return classify(err)
	}
	info := parseInfo(text)
	if info["loading"] == "1" {
		return errors.New("the server is loading its data")
	}
	if info["role"] == "slave" {
		return errors.New("the server is a replica, which can't be written to")
	}
	var wrong []string
	version, known := serverVersion(info)
	if !known {
		logger.WarnContext(ctx, "the server does not tell its version", "want", fmt.Sprintf("redis %d.%d or newer", OldestMajor, OldestMinor))
	} else if version[0] < OldestMajor || version[0] == OldestMajor && version[1] < OldestMinor {
		wrong = append(wrong, fmt.Sprintf("its version is %s, want %d.%d or newer", info["redis_version"], OldestMajor, OldestMinor))
	}
	if policy := evictionPolicy(ctx, client, info); policy != "" && policy != "noeviction" {
		wrong = append(wrong, fmt.Sprintf("maxmemory-policy is %s, which lets it delete streams and session records: "+
			"set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)", policy))
	}
	if info["cluster_enabled"] == "1" && !inCluster {
		wrong = append(wrong, "it is a node of a cluster: write the URL with redis+cluster://")
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrUnsuitable, strings.Join(wrong, "; "))
	}
	if volatile(ctx, client, info) {
		logger.WarnContext(ctx, "redis has no persistence: a restart of it loses every entry that was not handled and every session",
			"want", "appendonly yes, or save points")
	}
	return nil
}

// classify marks the errors that waiting does not cure.
func classify(err error) error {
	text := err.Error()
	for _, code := range [...]string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR DB index", "ERR Client sent AUTH"} {
		if strings.HasPrefix(text, code) {
			return fmt.Errorf("%w: %s (check user, password and database of redis.url)", ErrUnsuitable, text)
		}
	}
	if strings.Contains(text, "cluster support disabled") {
		return fmt.Errorf("%w: it is no cluster: write the URL with redis://", ErrUnsuitable)
	}
	return err
}

// parseInfo reads the reply of INFO.
//
// Source: https://redis.io/docs/latest/commands/info/
func parseInfo(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(name, "#") {
			m[name] = value
		}
	}
	return m
}

func serverVersion(info map[string]string) (version [2]int, known bool) {
	parts := strings.SplitN(info["redis_version"], ".", 3)
	if len(parts) < 2 {
		return version, false
	}
	for i := range version {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return version, false
		}
		version[i] = n
	}
	return version, true
}

// evictionPolicy is empty if the server tells it by neither way.
func evictionPolicy(ctx context.Context, client redis.Cmdable, info map[string]string) string {
	if policy := info["maxmemory_policy"]; policy != "" {
		return policy
	}
	settings, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return "" // managed servers refuse CONFIG
	}
	return settings["maxmemory-policy"]
}

// volatile reports whether the server surely keeps nothing on disk.
func volatile(ctx context.Context, client redis.Cmdable, info map[string]string) bool {
	if info["aof_enabled"] != "0" {
		return false
	}
	settings, err := client.ConfigGet(ctx, "save").Result()
	if err != nil {
		return false
	}
	save, told := settings["save"]
	return told && save == ""
}
