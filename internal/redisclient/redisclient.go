// Package redisclient makes the Redis clients of Sluice's processes from the
// URL they are configured with, and checks that the server behind one can hold
// what Sluice puts there.
package redisclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Embedded is the URL that stands for a server inside the process.
const Embedded = "embedded"

// ErrEmbedded is returned by New for Embedded: there is no server to connect to
// until the process has started one.
var ErrEmbedded = errors.New("redis: the server is to be embedded in the process")

// ErrURL is wrapped by the errors for a URL that no client can be made from.
// They never contain the URL, which may have a password in it.
var ErrURL = errors.New("bad redis URL")

// Forms lists the URLs that New takes.
const Forms = "redis://[user:password@]host[:port][/db], rediss:// (TLS), redis+cluster://host[,host…], " +
	"redis+sentinel://host[,host…][/db]?master_name=name (both with rediss+ for TLS), unix:///path[?db=n]"

// ReadBufferBytes is what a connection reads at a time: entries come in batches
// far larger than go-redis's own 32 KiB.
const ReadBufferBytes = 256 << 10

// New returns a client for a URL of one of Forms, without connecting. Options
// of go-redis may follow as query parameters, in snake case (pool_size=20); with
// redis+sentinel the URL's user and password are those of the sentinels, the
// parameters username and password those of the server.
//
// The client never repeats a command by itself: whether one whose reply was lost
// may be sent again only its caller can tell. max_retries is therefore refused.
// The error wraps ErrURL, or is ErrEmbedded.
func New(redisURL string) (redis.UniversalClient, error) {
	t, err := parse(redisURL)
	if err != nil {
		return nil, err
	}
	return t.client()
}

// Validate returns the error that New would return, except for Embedded.
func Validate(redisURL string) error {
	_, err := parse(redisURL)
	if errors.Is(err, ErrEmbedded) {
		return nil
	}
	return err
}

// Redact returns the URL as it may be shown: without its user and passwords, or nothing
// of it if it can't be told where they are.
func Redact(redisURL string) string {
	if redisURL == Embedded || redisURL == "" {
		return redisURL
	}
	scheme, rest, ok := strings.Cut(redisURL, "://")
	if !ok || strings.ContainsAny(scheme, "@:/?") {
		return "(hidden)"
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "xxxxx@" + rest[at+1:]
	}
	if !hasQuery {
		return scheme + "://" + rest
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, _, _ := strings.Cut(part, "=")
		switch {
		case strings.ContainsAny(name, "@:/"): // the tail of a password that has a ? in it
			return "(hidden)"
		case strings.Contains(strings.ToLower(name), "pass"), strings.Contains(name, "%"):
			parts[i] = "password=xxxxx"
		}
	}
	return scheme + "://" + rest + "?" + strings.Join(parts, "&")
}

type kind uint8

const (
	single kind = iota
	cluster
	sentinel
)

// A target is a URL taken apart: options of the kind it names.
type target struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	sentinel *redis.FailoverOptions
}

func bad(format string, args ...any) (target, error) {
	return target{}, fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

func parse(redisURL string) (target, error) {
	if redisURL == Embedded {
		return target{}, ErrEmbedded
	}
	scheme, rest, ok := strings.Cut(redisURL, "://")
	if !ok {
		return bad("it has no scheme")
	}
	plain, of, _ := strings.Cut(scheme, "+")
	kinds := map[string]kind{"": single, "cluster": cluster, "sentinel": sentinel}
	k, known := kinds[of]
	if known = known && (plain == "redis" || plain == "rediss") || scheme == "unix"; !known {
		return bad("the scheme %.20q is not known", scheme)
	}
	if k == single {
		u, err := check(redisURL)
		if err != nil {
			return target{}, err
		}
		if scheme != "unix" && u.Hostname() == "" {
			return bad("it names no host")
		}
		o, err := redis.ParseURL(redisURL)
		if err != nil {
			return bad("%s", reason(err))
		}
		return target{single: o}, nil
	}

	// go-redis wants the first host in the URL and the others as parameters.
	head, query, _ := strings.Cut(rest, "?")
	head, path, _ := strings.Cut(head, "/")
	user := ""
	if at := strings.LastIndexByte(head, '@'); at >= 0 {
		user, head = head[:at+1], head[at+1:]
	}
	port := "6379"
	if k == sentinel {
		port = "26379"
	}
	hosts := strings.Split(head, ",")
	for i, host := range hosts {
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Hostname() == "" || u.Host != host {
			return bad("host %d of %d is not host or host:port", i+1, len(hosts))
		}
		if u.Port() == "" {
			hosts[i] = net.JoinHostPort(u.Hostname(), port)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("its query parameters are malformed")
	}
	values["addr"] = append(hosts[1:], values["addr"]...)
	whole := plain + "://" + user + hosts[0] + "/" + path + "?" + values.Encode()
	if _, err := check(whole); err != nil {
		return target{}, err
	}
	if k == cluster {
		if db := strings.Trim(path, "/"); db != "" && db != "0" {
			return bad("a cluster has database 0 only")
		}
		o, err := redis.ParseClusterURL(whole)
		if err != nil {
			return bad("%s", reason(err))
		}
		return target{cluster: o}, nil
	}
	o, err := redis.ParseFailoverURL(whole)
	if err != nil {
		return bad("%s", reason(err))
	}
	if o.MasterName == "" {
		return bad("sentinels need ?master_name=, the name they know the server by")
	}
	if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
		return bad("commands can't be routed to replicas")
	}
	return target{sentinel: o}, nil
}

// check refuses what go-redis would take, or refuse in words that have a
// password in them.
func check(redisURL string) (*url.URL, error) {
	u, err := url.Parse(redisURL)
	if err != nil {
		_, err := bad("it is malformed (a special character in user or password is written %%xx)")
		return nil, err
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		_, err := bad("its query parameters are malformed")
		return nil, err
	}
	if strings.Contains(u.Path, "@") {
		_, err := bad("it is malformed (a special character in user or password is written %%xx)")
		return nil, err
	}
	for name := range values {
		if strings.ContainsAny(name, "@:/") { // the tail of a password that has a ? in it
			_, err := bad("it is malformed (a special character in user or password is written %%xx)")
			return nil, err
		}
		if name == "max_retries" {
			_, err := bad("max_retries can't be set: what was perhaps executed is not sent again blindly")
			return nil, err
		}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			_, err := bad("port %.10q is not a number from 1 to 65535", port)
			return nil, err
		}
	}
	return u, nil
}

// reason is the text of one of go-redis's errors without its prefix.
func reason(err error) string { return strings.TrimPrefix(err.Error(), "redis: ") }

func (t target) client() (redis.UniversalClient, error) {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case t.cluster != nil:
		o := t.cluster
		o.MaxRetries, o.ReadBufferSize, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = -1, ReadBufferBytes, true, quiet
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		// By itself go-redis would send to a killed master for a minute after its
		// replica was promoted: a dead node names no other.
		o.ClusterStateReloadInterval = 2 * time.Second
		o.IdentitySuffix = "sluice"
		addTLS(o.TLSConfig)
		return redis.NewClusterClient(o), nil
	case t.sentinel != nil:
		o := t.sentinel
		o.MaxRetries, o.ReadBufferSize, o.ContextTimeoutEnabled = -1, ReadBufferBytes, true
		o.IdentitySuffix = "sluice"
		addTLS(o.TLSConfig)
		return redis.NewFailoverClient(o), nil
	default:
		o := t.single
		o.MaxRetries, o.ReadBufferSize, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = -1, ReadBufferBytes, true, quiet
		o.IdentitySuffix = "sluice"
		addTLS(o.TLSConfig)
		return redis.NewClient(o), nil
	}
}

func addTLS(c *tls.Config) {
	if c != nil && c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
}

// Addrs returns the addresses a URL names, for a log line. It is nil for a URL
// that New refuses.
func Addrs(redisURL string) []string {
	t, err := parse(redisURL)
	switch {
	case err != nil:
		return nil
	case t.cluster != nil:
		return slices.Clone(t.cluster.Addrs)
	case t.sentinel != nil:
		return slices.Clone(t.sentinel.SentinelAddrs)
	default:
		return []string{t.single.Addr}
	}
}
