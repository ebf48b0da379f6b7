package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// TestScenario071RedisPaused freezes Redis under load: dispatches wait, heartbeats go on.
func TestScenario071RedisPaused(t *testing.T) {
	t.Parallel()
	pause := 3 * time.Second
	if *full {
		pause = 12 * time.Second
	}
	server := redistest.Start(t)
	r := newViolence(t, server.Addr())
	p := r.gateway(t, "--admin.addr=127.0.0.1:0")
	stop := r.begin(t, 500)
	proctest.Eventually(t, "it is ready", func() bool { status, _ := get(t, p, "/readyz"); return status == 200 })
	server.Pause(t)
	time.Sleep(pause)
	server.Continue(t)
	stop()
	r.drained(t)
	r.exactlyOnce(t)
	if i, n := len(r.discord.Identifies()), len(r.discord.Resumes()); i != 1 || n > 1 {
		t.Errorf("%d identifies and %d resumes, want 1 and at most 1", i, n)
	}
	proctest.Eventually(t, "it is ready again", func() bool { status, _ := get(t, p, "/readyz"); return status == 200 })
}

// TestRedisRefuses has Redis refuse to write for a while, in each way it can.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, code  string
		refuse, end []any
	}{
		{"scenario 049 oom-on-xadd", "OOM", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{"scenario 047 readonly-after-failover", "READONLY", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		{"scenario 055 acl-misses-one-command", "NOPERM", []any{"ACL", "SETUSER", "default", "-xadd"}, []any{"ACL", "SETUSER", "default", "+xadd"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := newViolence(t, server.Addr())
			p := r.gateway(t, "--admin.addr=127.0.0.1:0")
			stop := r.begin(t, 500)
			r.traffic(t, 100)
			if err := r.rdb.Do(t.Context(), test.refuse...).Err(); err != nil {
				t.Fatal(err)
			}
			proctest.Eventually(t, "it is not ready, and says why", func() bool {
				status, body := get(t, p, "/readyz")
				return status == 503 && strings.Contains(body, test.code)
			})
			r.traffic(t, 500) // which waits
			if err := r.rdb.Do(t.Context(), test.end...).Err(); err != nil {
				t.Fatal(err)
			}
			stop()
			r.drained(t)
			r.exactlyOnce(t)
			if n := len(r.discord.Identifies()); n != 1 {
				t.Errorf("%d identifies, want 1", n)
			}
			for _, want := range []string{"commits are stalled", "commits flow again"} {
				if n := strings.Count(p.Output.String(), want); n != 1 {
					t.Errorf("%q is logged %d times, want once", want, n)
				}
			}
		})
	}
}

// TestManyShards has three processes identify the shards of one bot, and kills
// one of them.
func TestManyShards(t *testing.T) {
	t.Parallel()
	shards := 4
	if *full {
		shards = 16
	}
	const buckets = 2
	discord := gatewaytest.New(gatewaytest.Config{Shards: shards, MaxConcurrency: buckets, IdentifyInterval: 5 * time.Second})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	r := &run{discord: discord, rdb: redistest.Client(t), prefix: redistest.Prefix(t), shards: shards, lanes: wire.DefaultLanes(shards)}
	r.flags = []string{"--redis.url=redis://" + redistest.Addr(t) + "/0", "--redis.prefix=" + r.prefix}
	programs := []*proctest.Program{r.gateway(t), r.gateway(t), r.gateway(t)}
	all := make([]int, shards)
	for i := range all {
		all[i] = i
	}
	proctest.Eventually(t, "all shards are connected, and their sessions recorded", func() bool {
		for _, shard := range all {
			recorded := r.rdb.HExists(t.Context(), wire.NewShard(r.prefix, shard, shards).Session(), wire.SessionID).Val()
			if !recorded || !discord.Connected(shard) {
				return false
			}
		}
		return true
	})
	programs[0].Kill()
	r.gateway(t) // and one is added
	held := func() int {
		n := 0
		for _, shard := range all {
			owner := r.rdb.Get(t.Context(), wire.NewShard(r.prefix, shard, shards).Owner()).Val()
			if owner != "" && discord.Connected(shard) {
				n++
			}
		}
		return n
	}
	proctest.Eventually(t, "the others hold all shards", func() bool { return held() == shards && len(discord.Resumes()) > 0 })
	last := make(map[int]time.Time)
	for _, i := range discord.Identifies() {
		bucket := i.Shard % buckets
		if before := last[bucket]; !before.IsZero() && i.At.Sub(before) < 5*time.Second {
			t.Errorf("shard %d identified %v after another of its bucket", i.Shard, i.At.Sub(before))
		}
		last[bucket] = i.At
	}
	if n := len(discord.Identifies()); n != shards {
		t.Errorf("%d identifies for %d shards", n, shards)
	}
}

// TestScenario067HugeGuild sends a GUILD_CREATE of 30 MB, compressed.
func TestScenario067HugeGuild(t *testing.T) {
	t.Parallel()
	// With -race it takes the Discord of this process seconds to compress it.
	r := newViolenceAt(t, redistest.Addr(t), 15*time.Second)
	p := r.gateway(t)
	if err := r.discord.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	payload := hugeGuild(30 << 20)
	sequence, err := r.discord.Send(0, "GUILD_CREATE", payload)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.discord.Send(0, "MESSAGE_CREATE", []byte(`{"id":"1","channel_id":"2","guild_id":"9001"}`)); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= 3 })
	for _, e := range r.entries(t) {
		if e.Sequence == sequence && (e.Flags != wire.Slim || !strings.Contains(string(e.Payload), `"name":"Very Large Cove"`)) {
			t.Errorf("the guild has flags %q and %d bytes", e.Flags, len(e.Payload))
		}
	}
	members := r.rdb.HLen(t.Context(), wire.NewShard(r.prefix, 0, 1).Cache("member:9001")).Val()
	if members < 50_000 {
		t.Errorf("%d members are cached", members)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Skipf("the process's memory can't be read here: %v", err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kb, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}
	if kb > 400<<10 {
		t.Errorf("the gateway took %d MB at its most, want less than 400", kb>>10)
	}
	if n := len(r.discord.Resumes()); n != 0 {
		t.Errorf("%d resumes: the connection did not last", n)
	}
	t.Logf("%d members, %d MB at the most", members, kb>>10)
}

func hugeGuild(size int) []byte {
	b := []byte(`{"id":"9001","name":"Very Large Cove","roles":[],"channels":[],"threads":[],"presences":[],"voice_states":[],"emojis":[],"stickers":[],"members":[`)
	for i := 0; len(b) < size; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"user":{"id":"%d","username":"crew%07d","discriminator":"0","global_name":"Crew é中 %d","avatar":"%032x","public_flags":0},"roles":["900400000000000%03d"],"nick":null,`+
			`"joined_at":"2030-02-03T04:05:06.%03d000+00:00","premium_since":null,"deaf":false,"mute":false,"flags":0,"pending":false,"communication_disabled_until":null}`,
			900310000000000000+i, i, i, i*7919, i%250, i%1000)
	}
	return append(b, "]}"...)
}

// TestScenario051Loading starts against a Redis that says it is loading.
func TestScenario051Loading(t *testing.T) {
	t.Parallel()
	front := newFront(t, redistest.Addr(t))
	front.loading(true)
	r := newViolence(t, front.addr())
	p := r.gateway(t, "--admin.addr=127.0.0.1:0")
	proctest.Eventually(t, "it says that Redis is loading", func() bool { return strings.Contains(p.Output.String(), "LOADING") })
	if status, body := get(t, p, "/readyz"); status != 503 {
		t.Errorf("/readyz = %d %s while Redis is loading, want 503", status, body)
	}
	front.loading(false)
	stop := r.begin(t, 200)
	r.traffic(t, 50)
	front.loading(true) // and once more, under load
	front.cut()
	r.traffic(t, 200) // which waits
	front.loading(false)
	stop()
	r.drained(t)
	r.exactlyOnce(t)
}

// TestFailoverLosesTheTail has a replica that lags take over: Redis goes back
// behind what it had confirmed, and Discord sends the rest again.
func TestFailoverLosesTheTail(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	standby := replica.Client(t)
	if err := standby.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(standby.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	front := newFront(t, master.Addr())
	r := newViolence(t, front.addr())
	r.gateway(t)
	stop := r.begin(t, 500)
	r.traffic(t, 200) // that the replica gets
	replica.Pause(t)
	r.traffic(t, 300) // that it does not
	master.Kill()
	replica.Continue(t)
	if err := standby.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	before := standby.HGet(t.Context(), wire.NewShard(r.prefix, 0, 1).Session(), wire.SessionSequence).Val()
	front.to(replica.Addr())
	proctest.Eventually(t, "the session is resumed", func() bool { return len(r.discord.Resumes()) > 0 })
	if at := r.discord.Resumes()[0].Sequence; strconv.FormatInt(at, 10) != before {
		t.Errorf("resumed from sequence %d, want %s: what the replica has", at, before)
	}
	r.traffic(t, 100)
	stop()
	r.drained(t)
	r.exactlyOnce(t)
	if n := len(r.discord.Identifies()); n != 1 {
		t.Errorf("%d identifies, want 1", n)
	}
}

// TestRedisEmptied has Redis lose everything under load: the gap is told in each
// lane, and all that comes after it is there once.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	r := newViolence(t, server.Addr())
	r.gateway(t)
	stop := r.begin(t, 500)
	r.traffic(t, 200)
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "it identifies anew", func() bool { return len(r.discord.Identifies()) == 2 })
	if err := r.discord.WaitConnected(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	r.traffic(t, 200)
	stop()
	session := r.discord.SessionID(0)
	sent := make(map[int64]bool)
	for _, s := range r.discord.Sent() {
		if s.Session == session {
			sent[s.Sequence] = true
		}
	}
	var got map[int64]int
	proctest.Eventually(t, "everything of the new session is in the streams", func() bool {
		got = make(map[int64]int)
		for _, e := range r.entries(t) {
			if e.Session == wire.ShortSession(session) && e.Sequence != 0 {
				got[e.Sequence]++
			}
		}
		return len(got) >= len(sent)
	})
	for sequence, n := range got {
		if n != 1 || !sent[sequence] {
			t.Errorf("sequence %d is there %d times, sent %v", sequence, n, sent[sequence])
		}
	}
	notices := 0
	for _, e := range r.entries(t) {
		if e.Event == wire.EventSessionLost {
			notices++
		}
	}
	if notices != r.lanes {
		t.Errorf("%d notices of the lost session, want one in each of %d lanes", notices, r.lanes)
	}
	if n := r.rdb.Exists(t.Context(), wire.TopologyKey(r.prefix)).Val(); n != 1 {
		t.Error("the topology was not recorded again: workers would wait for it for ever")
	}
}
