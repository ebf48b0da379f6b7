package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const introduction = `# Configuration

<!-- Written by: go test ./config -run Documentation -update -->

The gateway, every worker and the ` + "`sluice`" + ` tool read the same configuration: a YAML file (` + "`--config`, else `sluice.yaml`" + `
if it is there), over it the environment, over it flags. A setting has one name in all three:

| | |
|---|---|
| file | ` + "`redis: {url: redis://redis:6379/0}`" + ` |
| environment | ` + "`SLUICE_REDIS_URL=redis://redis:6379/0`" + ` |
| flag | ` + "`--redis.url=redis://redis:6379/0`" + ` |

Lists are written with commas, in the file as YAML lists too. Sizes are bytes, or have a unit: ` + "`512MiB`, `500MB`" + `. Durations are
written as Go does: ` + "`1m30s`, `250ms`" + `. An empty variable counts as not set, and so does ` + "`null`" + ` in the file.

Everything is checked before anything starts. What can't be used is reported all at once, each with where it was given
and what is allowed, and the program ends with code 2. A setting there is none of is refused in the file and as a flag;
as a variable it is a warning, because Kubernetes adds variables of its own. Secrets are never shown.

`

func reference() string {
	var b strings.Builder
	b.WriteString(introduction)
	section := ""
	for _, k := range config.Keys() {
		if name, _, _ := strings.Cut(k.Path, "."); name != section {
			section = name
			fmt.Fprintf(&b, "## %s\n\n", section)
		}
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n", k.Path, k.Doc)
		if k.Default != "" {
			fmt.Fprintf(&b, "- default: `%s`\n", k.Default)
		} else {
			b.WriteString("- default: none\n")
		}
		fmt.Fprintf(&b, "- allowed: %s\n- environment: `%s`\n\n", k.Want, k.Env)
	}
	b.WriteString(pairs)
	return b.String()
}

const pairs = `## What must agree

- ` + "`discord.shard_ids`" + ` are below ` + "`discord.shards`" + `, if that is a number.
- ` + "`forward.max_payload`" + ` is at most ` + "`forward.buffer_bytes`" + ` and ` + "`forward.max_bytes`" + `.
- ` + "`replay.backoff`" + ` is at most ` + "`replay.backoff_max`" + `.
- ` + "`replay.max_in_hand`" + ` is at least ` + "`replay.concurrency`" + `.
`

func TestDocumentation(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "configuration.md")
	want := reference()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s does not say what the table says (go test ./config -run Documentation -update):\n%s", path, diff)
	}
}

func TestTheTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range config.Keys() {
		section, name, ok := strings.Cut(k.Path, ".")
		if !ok || section == "" || name == "" || strings.ToLower(k.Path) != k.Path || seen[k.Path] {
			t.Errorf("the path %q is not section.name, lower case, once", k.Path)
		}
		seen[k.Path] = true
		if !strings.HasSuffix(k.Doc, ".") || k.Want == "" || seen[k.Env] {
			t.Errorf("%s: the documentation is %q, allowed is %q, the variable %s", k.Path, k.Doc, k.Want, k.Env)
		}
		seen[k.Env] = true
	}
}
