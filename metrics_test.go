package sluice_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// A described is a metric that a program registers.
type described struct {
	name, help string
	labels     []string
}

// A describer is a registerer that notes what is registered.
type describer struct {
	mu  sync.Mutex
	all map[string]described
}

var desc = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*)", unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (d *describer) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 16)
	c.Describe(ch)
	close(ch)
	d.mu.Lock()
	defer d.mu.Unlock()
	for of := range ch {
		m := desc.FindStringSubmatch(of.String())
		if m == nil {
			return fmt.Errorf("a description is written %s", of)
		}
		var labels []string
		for _, label := range strings.Split(m[3]+","+m[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				labels = append(labels, name)
			}
		}
		d.all[m[1]] = described{name: m[1], help: strings.ReplaceAll(m[2], `\"`, `"`), labels: labels}
	}
	return nil
}

func (d *describer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

func (d *describer) Unregister(prometheus.Collector) bool { return false }

// registered returns what a gateway and a worker register.
func registered(t *testing.T) map[string]described {
	t.Helper()
	d := &describer{all: make(map[string]described)}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	_, err := forward.New(rdb, gateway.Config{Token: "MTIz.x.y", URL: "ws://127.0.0.1:1"}, forward.Config{
		Topology: forward.Topology{Application: "123", Shards: 1, Lanes: 1}, Metrics: d,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.New(rdb, listener.New(), replay.Config{Metrics: d}); err != nil {
		t.Fatal(err)
	}
	if len(d.all) < 50 {
		t.Fatalf("%d metrics are registered: the test proves little", len(d.all))
	}
	return d.all
}

const metricsIntroduction = `# Metrics

<!-- Written by: go test . -run MetricsPage -update -->

What a gateway (` + "`gateway`, `forward`, `cache`" + `) and a worker (` + "`replay`" + `) serve at ` + "`admin.addr`/`/metrics`" + `, beside what every Go program
does. Values of labels are bounded: shards, groups (64 have their own), listeners of the program, Discord's types of events
(others share ` + "`(custom)`" + `), and the reasons named here. [operating.md](operating.md#what-to-look-at) says which of them to look at;
` + "[deploy](../deploy)" + ` has a Grafana board and alert rules.

`

// TestMetricsPage has docs/metrics.md list every metric.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	all := registered(t)
	var b strings.Builder
	b.WriteString(metricsIntroduction)
	section := ""
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if !yield(name) {
				return
			}
		}
	}) {
		m := all[name]
		if of := strings.Split(name, "_")[1]; of != section {
			section = of
			fmt.Fprintf(&b, "## %s\n\n| metric | labels | |\n|---|---|---|\n", section)
		}
		next := "| `" + name + "` | " + strings.Join(m.labels, ", ") + " | " + m.help + " |\n"
		b.WriteString(next)
	}
	want := strings.ReplaceAll(b.String(), "|\n## ", "|\n\n## ")
	path := filepath.Join("docs", "metrics.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, read(t, path)); diff != "" {
		t.Errorf("%s does not say what is registered (go test . -run MetricsPage -update):\n%s", path, diff)
	}
}

var metricName = regexp.MustCompile(`\bsluice_(?:forward|cache|replay|gateway)_[a-z_]+`)

// unknown returns the metrics that a text names and nobody registers, and how many
// it names.
func unknown(all map[string]described, text string) (names []string, found int) {
	for _, name := range metricName.FindAllString(text, -1) {
		found++
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && all[cut].name != "" {
				base = cut
			}
		}
		if all[base].name == "" {
			names = append(names, name)
		}
	}
	return names, found
}

func TestMetricsOnPagesExist(t *testing.T) {
	t.Parallel()
	all := registered(t)
	sum := 0
	for path, page := range pages(t) {
		names, found := unknown(all, page)
		sum += found
		if len(names) > 0 {
			t.Errorf("%s speaks of %q, which nobody registers", path, names)
		}
	}
	if sum < 100 {
		t.Errorf("found %d metrics: the test proves little", sum)
	}
}

// TestBoard holds the Grafana board against the metrics there are.
func TestBoard(t *testing.T) {
	t.Parallel()
	all := registered(t)
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr, RefID string
			}
		}
	}
	text := read(t, "deploy/grafana/sluice.json")
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 20 {
		t.Errorf("the board is %q, %q, with %d panels", board.Title, board.UID, len(board.Panels))
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q: want an id of its own and a title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is off the grid: %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkQuery(t, all, p.Title, target.Expr)
		}
	}
}

// TestAlerts holds the alert rules against the metrics there are.
func TestAlerts(t *testing.T) {
	t.Parallel()
	all := registered(t)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "deploy/prometheus/sluice.rules.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	operating, n := read(t, "docs/operating.md"), 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			n++
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s does not say what it is about", rule.Alert)
			}
			checkQuery(t, all, rule.Alert, rule.Expr)
			_, anchor, _ := strings.Cut(rule.Annotations["runbook"], "docs/operating.md#")
			if anchor == "" || !hasAnchor(operating, anchor) {
				t.Errorf("%s: what to do about it is at %q, which docs/operating.md does not have", rule.Alert, rule.Annotations["runbook"])
			}
		}
	}
	if n < 12 {
		t.Errorf("there are %d rules", n)
	}
}

// checkQuery checks what can be checked of a query without Prometheus: it is
// balanced, and uses metrics and labels that exist.
func checkQuery(t *testing.T, all map[string]described, where, query string) {
	t.Helper()
	var open []rune
	for _, r := range query {
		switch r {
		case '(', '{', '[':
			open = append(open, r)
		case ')', '}', ']':
			if len(open) == 0 || open[len(open)-1] != map[rune]rune{')': '(', '}': '{', ']': '['}[r] {
				t.Errorf("%s: a bracket too many in %s", where, query)
				return
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("%s: a bracket is not closed in %s", where, query)
	}
	names, found := unknown(all, query)
	if found == 0 || len(names) > 0 {
		t.Errorf("%s asks for %d metrics, of which nobody registers %q: %s", where, found, names, query)
	}
	known := []string{"le", "job", "instance"}
	for _, name := range metricName.FindAllString(query, -1) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			known = append(known, all[strings.TrimSuffix(name, suffix)].labels...)
		}
	}
	for _, m := range labelList.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !slices.Contains(known, label) {
				t.Errorf("%s groups by %s, which none of its metrics has: %s", where, label, query)
			}
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(query, -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("%s asks for the label %s, which none of its metrics has: %s", where, m[1], query)
		}
	}
}

var (
	labelList = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)`)
	matcher   = regexp.MustCompile(`[{,] *([a-z_]+) *(?:=~|!~|!=|=)`)
)
