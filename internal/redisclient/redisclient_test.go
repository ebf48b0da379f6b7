package redisclient_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/sluicehq/sluice/internal/redisclient"
)

func TestNew(t *testing.T) {
	t.Parallel()
	type made struct {
		Addrs    string
		User     string
		Password string
		DB       int
		Pool     int
		TLS      bool
		Cluster  bool
	}
	for in, want := range map[string]made{
		"redis://127.0.0.1:6379/0":               {Addrs: "127.0.0.1:6379"},
		"redis://redis":                          {Addrs: "redis:6379"},
		"redis://bot:se%2Fcret@redis/3":          {Addrs: "redis:6379", User: "bot", Password: "se/cret", DB: 3},
		"redis://[::1]:7000/1?pool_size=20":      {Addrs: "[::1]:7000", DB: 1, Pool: 20},
		"rediss://:secret@redis:6380":            {Addrs: "redis:6380", Password: "secret", TLS: true},
		"unix:///run/redis.sock?db=2":            {Addrs: "/run/redis.sock", DB: 2},
		"redis+cluster://a,b:7001,[::1]:7002":    {Addrs: "a:6379 b:7001 [::1]:7002", Cluster: true},
		"redis+cluster://bot:pw@a:7000/0":        {Addrs: "a:7000", User: "bot", Password: "pw", Cluster: true},
		"redis+cluster://a?addr=b:1&pool_size=3": {Addrs: "a:6379 b:1", Pool: 3, Cluster: true},
		"rediss+cluster://a":                     {Addrs: "a:6379", TLS: true, Cluster: true},
	} {
		client, err := redisclient.New(in)
		if err != nil {
			t.Errorf("New(%q): %v", in, err)
			continue
		}
		var got made
		switch c := client.(type) {
		case *redis.Client:
			o := c.Options()
			got = made{o.Addr, o.Username, o.Password, o.DB, o.PoolSize, o.TLSConfig != nil, false}
			if o.MaxRetries != 0 || o.ReadBufferSize != redisclient.ReadBufferBytes { // 0: none, once filled
				t.Errorf("New(%q): %d retries, a read buffer of %d", in, o.MaxRetries, o.ReadBufferSize)
			}
		case *redis.ClusterClient:
			o := c.Options()
			got = made{strings.Join(o.Addrs, " "), o.Username, o.Password, 0, o.PoolSize, o.TLSConfig != nil, true}
			if o.MaxRetries > 0 || o.ReadBufferSize != redisclient.ReadBufferBytes {
				t.Errorf("New(%q): %d retries, a read buffer of %d", in, o.MaxRetries, o.ReadBufferSize)
			}
		}
		if want.Pool == 0 {
			got.Pool = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("New(%q) (-want +got):\n%s", in, diff)
		}
		if addrs := strings.Join(redisclient.Addrs(in), " "); addrs != want.Addrs {
			t.Errorf("Addrs(%q) = %q, want %q", in, addrs, want.Addrs)
		}
		if err := redisclient.Validate(in); err != nil {
			t.Errorf("Validate(%q) = %v", in, err)
		}
		client.Close()
	}
}

func TestNewForSentinels(t *testing.T) {
	t.Parallel()
	const in = "redis+sentinel://:sentinelpw@s1,s2:7000/2?master_name=main&username=bot&password=pw"
	client, err := redisclient.New(in)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if got, want := strings.Join(redisclient.Addrs(in), " "), "s1:26379 s2:7000"; got != want {
		t.Errorf("Addrs = %q, want %q", got, want)
	}
	o := client.(*redis.Client).Options()
	if o.Username != "bot" || o.Password != "pw" || o.DB != 2 {
		t.Errorf("the server's user, password and database are %q, %q, %d", o.Username, o.Password, o.DB)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                  "no scheme",
		"127.0.0.1:6379":                    "no scheme",
		"http://redis":                      "scheme",
		"redis+replica://redis":             "scheme",
		"unix+cluster:///x":                 "scheme",
		"redis://":                          "no host",
		"redis://:6379":                     "no host",
		"redis://redis:99999":               "port",
		"redis://redis:0":                   "port",
		"redis://redis/bot":                 "database",
		"redis://redis/0/1":                 "path",
		"redis://redis?pool=7":              "pool",
		"redis://redis?%zz":                 "query",
		"redis://redis?pool_size=many":      "pool_size",
		"redis://redis?max_retries=3":       "max_retries",
		"redis+cluster://a,b?max_retries=0": "max_retries",
		"redis+cluster://":                  "host 1 of 1",
		"redis+cluster://a,,b":              "host 2 of 3",
		"redis+cluster://a/3":               "database 0",
		"redis+sentinel://a":                "master_name",
		"redis+sentinel://a?master_name=m&replica_only=1":  "replicas",
		"redis://bot:hunter2%@redis":                       "malformed",
		"redis://bot:hunter2/hunter2@redis":                "malformed",
		"redis://bot:12/hunter2@redis":                     "malformed",
		"redis://bot:12?hunter2@redis":                     "malformed",
		"redis+cluster://bot:hunter2/hunter2@redis":        "host 1 of 1",
		"redis+cluster://bot:hunter2%@redis":               "malformed",
		"redis+sentinel://bot:12/hunter2@s?master_name=m":  "malformed",
		"redis+sentinel://bot:hunter2#@s?master_name=main": "",
	} {
		client, err := redisclient.New(in)
		if client != nil {
			client.Close()
		}
		if !errors.Is(err, redisclient.ErrURL) || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%q) = %v, want an error about %s", in, err, want)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("New(%q) tells a password: %v", in, err)
		}
		if got := redisclient.Validate(in); !errors.Is(got, redisclient.ErrURL) {
			t.Errorf("Validate(%q) = %v, want ErrURL", in, got)
		}
		if got := redisclient.Addrs(in); got != nil {
			t.Errorf("Addrs(%q) = %q, want none", in, got)
		}
	}
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	if _, err := redisclient.New("embedded"); !errors.Is(err, redisclient.ErrEmbedded) {
		t.Errorf("New(embedded) = %v, want ErrEmbedded", err)
	}
	if err := redisclient.Validate("embedded"); err != nil {
		t.Errorf("Validate(embedded) = %v", err)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                              "",
		"embedded":                      "embedded",
		"redis://redis:6379/0":          "redis://redis:6379/0",
		"redis://bot:hunter2@redis/0":   "redis://xxxxx@redis/0",
		"redis://:hunter2@redis?db=1":   "redis://xxxxx@redis?db=1",
		"redis://:hunt@hunter2@redis":   "redis://xxxxx@redis",
		"redis://bot:12/hunter2@redis":  "redis://xxxxx@redis",
		"redis+cluster://u:hunter2@a,b": "redis+cluster://xxxxx@a,b",
		"hunter2":                       "(hidden)",
		"bot:hunter2@redis":             "(hidden)",
		"bot:hunter2@x://redis":         "(hidden)",
		"redis+sentinel://s?master_name=m&password=hunter2&db=1":    "redis+sentinel://s?master_name=m&password=xxxxx&db=1",
		"redis+sentinel://s?sentinel_password=hunter2":              "redis+sentinel://s?password=xxxxx",
		"redis+sentinel://s?p%61ssword=hunter2&PASSWORD=hunter2&x=": "redis+sentinel://s?password=xxxxx&password=xxxxx&x=",
	} {
		if got := redisclient.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
	// A ? in a password ends what can be told apart: the rest is a query.
	if got := redisclient.Redact("redis://bot:12?hunter2@redis"); strings.Contains(got, "hunter2") {
		t.Errorf("Redact tells a password: %q", got)
	}
}
