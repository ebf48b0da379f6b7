package e2e

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// startCluster makes a cluster of three masters, each with a replica, the
// replicas last.
func startCluster(t *testing.T) []*redistest.Server {
	t.Helper()
	var nodes []*redistest.Server
	for range 6 {
		nodes = append(nodes, redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"))
	}
	do := func(node *redistest.Server, args ...any) {
		t.Helper()
		if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	for i, node := range nodes {
		do(node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < 3 {
			do(node, "CLUSTER", "ADDSLOTSRANGE", i*5461, min((i+1)*5461, 16384)-1+i/2)
		}
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(nodes[0].Addr())
		do(node, "CLUSTER", "MEET", host, port)
	}
	for i, node := range nodes[3:] {
		master := nodes[i].Client(t).Do(t.Context(), "CLUSTER", "MYID").Val().(string)
		proctest.Eventually(t, "the replica knows its master", func() bool {
			return node.Client(t).Do(t.Context(), "CLUSTER", "REPLICATE", master).Err() == nil
		})
		proctest.Eventually(t, "the replica follows", func() bool {
			return strings.Contains(node.Client(t).Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
	}
	for _, node := range nodes {
		proctest.Eventually(t, "the cluster is up", func() bool {
			return strings.Contains(node.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
	}
	return nodes
}

// TestClusterNodeKilled has a gateway of eight shards and two workers on a
// cluster of three masters, kills one of them, and has its replica promoted.
func TestClusterNodeKilled(t *testing.T) {
	t.Parallel()
	const shards = 8
	nodes := startCluster(t)
	var addrs []string
	for _, node := range nodes {
		addrs = append(addrs, node.Addr())
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { rdb.Close() })
	discord := gatewaytest.New(gatewaytest.Config{Shards: shards, MaxConcurrency: 16, HeartbeatInterval: time.Second})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	c := newCrewOf(t, &run{
		discord: discord, rdb: rdb, prefix: redistest.Prefix(t), shards: shards, lanes: wire.DefaultLanes(shards),
		flags: []string{"--redis.url=redis+cluster://" + strings.Join(addrs, ","), "--forward.max_length=10000000"},
	})
	c.flags = append(c.flags, "--redis.prefix="+c.prefix)
	c.gateway(t)
	for shard := range shards {
		if err := discord.WaitConnected(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	c.join(t)
	c.join(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sending sync.WaitGroup
	sending.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			for shard := range shards {
				guild := guildOf(shard, shards, n%5)
				payload := fmt.Sprintf(`{"id":"%d","channel_id":"%s0","guild_id":"%s","content":"%d"}`, 1_435_000_000_000_000_000+n*shards+shard, guild, guild, n)
				if _, err := discord.Send(shard, "MESSAGE_CREATE", []byte(payload)); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	c.traffic(t, 1000)
	nodes[1].Kill()
	proctest.Eventually(t, "the replica is a master", func() bool {
		return strings.Contains(nodes[4].Client(t).Info(t.Context(), "replication").Val(), "role:master")
	})
	c.traffic(t, 3000)
	cancel()
	sending.Wait()
	c.drained(t)
	c.exactlyOnce(t)
	if n := len(discord.Identifies()); n != shards {
		t.Errorf("%d identifies, want %d", n, shards)
	}
	proctest.Eventually(t, "everything is acknowledged", func() bool { return c.pending(t) == 0 })
	ok := make(map[string]bool)
	for _, n := range c.journal(t) {
		if n.result == "ok" {
			ok[n.listener+" "+n.id] = true
		}
	}
	for _, e := range c.entries(t) {
		if e.Event != "MESSAGE_CREATE" {
			continue
		}
		for _, name := range []string{"typed", "raw"} {
			if id := c.deliveryID(e); !ok[name+" "+id] {
				t.Errorf("%s was not handled by %s", id, name)
			}
		}
	}
	t.Logf("%d dispatches over %d shards, %d resumes", discord.SentCount(), shards, len(discord.Resumes()))
}

// guildOf returns the n-th of some guilds of a shard.
func guildOf(shard, shards, n int) string { return strconv.Itoa((n*shards + shard) << 22) }

// deliveryID returns what listeners get as the entry's id.
func (r *run) deliveryID(e entry) string {
	for shard := range r.shards {
		if rest, ok := strings.CutPrefix(e.stream, wire.NewShard(r.prefix, shard, r.shards).Tag()+":"); ok {
			return fmt.Sprint(shard, "/", strings.NewReplacer("stream:", "", "express:", "x").Replace(rest), "/", e.id)
		}
	}
	return ""
}

// TestSentinelFailover has the sentinels promote a replica when its master is
// killed.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.Addr())
	standby := replica.Client(t)
	if err := standby.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(standby.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := startSentinel(t, host, port)
	r := newViolence(t, master.Addr())
	r.rdb = standby // what is counted is what it has in the end
	r.flags[0] = "--redis.url=redis+sentinel://" + sentinel + "/0?master_name=main"
	r.gateway(t)
	stop := r.begin(t, 500)
	w := start(t, "worker", r.flags...)
	r.traffic(t, 500)
	master.Kill()
	proctest.Eventually(t, "the replica is a master", func() bool {
		return strings.Contains(standby.Info(t.Context(), "replication").Val(), "role:master")
	})
	r.traffic(t, 500)
	stop()
	r.drained(t)
	r.exactlyOnce(t)
	if n := len(r.discord.Identifies()); n != 1 {
		t.Errorf("%d identifies, want 1", n)
	}
	proctest.Eventually(t, "everything is acknowledged", func() bool { return r.pending(t) == 0 })
	if code := w.Stop(t); code != 0 {
		t.Errorf("worker: exit code %d, want 0", code)
	}
}

// startSentinel starts a sentinel that looks after one master, "main", and
// returns its address.
func startSentinel(t *testing.T, host, port string) string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, own, _ := net.SplitHostPort(addr)
	config := dir + "/sentinel.conf"
	writeFile(t, config, fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
sentinel monitor main %s %s 1
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 5000
`, own, dir, host, port))
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, config, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	rdb := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	proctest.Eventually(t, "the sentinel knows the replica", func() bool {
		replicas, err := rdb.Replicas(t.Context(), "main").Result()
		return err == nil && len(replicas) == 1
	})
	return addr
}
