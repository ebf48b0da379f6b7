package sluice_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluicehq/sluice"

// edges says which packages of ours a package may import. A package that is not
// in it, by its own path or a pattern's, fails the test: it gets a line here
// when it comes to be.
var edges = []struct {
	pkg string   // below the module; * is one element
	may []string // the same
}{
	{"internal/rawjson", nil},
	{"internal/dispatch", []string{"internal/rawjson"}},
	{"internal/dispatch/gen", []string{"internal/dispatch"}},
	{"internal/resp", nil},
	{"internal/wire", []string{"internal/rawjson", "internal/resp"}},
	{"internal/corpus", nil},
	{"internal/corpus/seeds", []string{"internal/corpus"}},
	{"internal/cachemodel", []string{"internal/rawjson"}},
	{"internal/redisclient", nil},
	{"internal/proctest", nil},
	{"internal/redistest", []string{"internal/proctest"}},
	{"internal/admin", nil},
	{"internal/embedded", nil},
	{"gateway", []string{"internal/metrics", "internal/dispatch", "internal/rawjson"}},
	{"gateway/gatewaytest", []string{"gateway", "internal/dispatch", "internal/rawjson"}},
	{"internal/metrics", nil},
	{"cache", []string{"internal/metrics", "internal/dispatch", "internal/rawjson", "internal/wire", "listener/discord"}},
	{"listener", []string{"internal/dispatch", "internal/rawjson", "listener/discord"}},
	{"listener/discord", []string{"internal/rawjson"}},
	{"listener/event", []string{"listener", "listener/discord"}},
	{"listener/listenertest", []string{"internal/dispatch", "internal/rawjson", "listener", "listener/discord", "listener/event"}},
	{"forward", []string{"internal/metrics", "cache", "gateway", "internal/dispatch", "internal/rawjson", "internal/redisclient", "internal/resp", "internal/wire"}},
	{"replay", []string{"internal/metrics", "cache", "internal/dispatch", "internal/rawjson", "internal/redisclient", "internal/resp", "internal/wire", "listener"}},
	{"config", []string{
		"cache", "forward", "gateway", "listener", "replay",
		"internal/dispatch", "internal/rawjson", "internal/redisclient", "internal/wire",
	}},
	{"internal/program", []string{"config", "forward", "gateway", "internal/admin", "internal/embedded", "internal/redisclient"}},
	{".", []string{
		"cache", "config", "forward", "gateway", "listener", "listener/discord", "listener/event", "replay",
		"internal/admin", "internal/demo", "internal/dispatch", "internal/embedded", "internal/program", "internal/rawjson", "internal/redisclient", "internal/wire",
	}},
	{"internal/demo", []string{
		".", "cache", "config", "forward", "gateway", "gateway/gatewaytest", "listener", "listener/*", "replay", "internal/*",
	}},
	{"cmd/*", []string{"*", "*/*", "*/*/*", "."}},
	{"cmd/internal/*", []string{"*", "*/*", "*/*/*", "."}},
	{"cmd/internal/*/*", []string{".", "listener", "listener/*"}},
	{"examples", nil},
	{"examples/*", []string{".", "cache", "config", "forward", "gateway", "gateway/gatewaytest", "listener", "listener/*", "replay"}},
}

// helpers may be imported by any test.
var helpers = []string{"internal/cachemodel", "internal/corpus", "internal/corpus/seeds", "internal/proctest", "internal/redistest", "gateway/gatewaytest", "listener/listenertest"}

// others says which packages of ours may import one of somebody else's, outside
// tests; or one of the standard library's that only programs have a use for.
var others = map[string][]string{
	"github.com/redis/go-redis/v9": {
		"forward", "replay", "cache", ".", "cmd/*", "cmd/internal/*", "internal/cachemodel", "internal/redistest", "internal/redisclient", "internal/program", "internal/demo", "examples/*",
	},
	"github.com/alicebob/miniredis/v2": {"internal/embedded"},
	"github.com/gorilla/websocket":     {"gateway", "gateway/gatewaytest"},
	"github.com/spf13/cobra":           {"cmd/*"},
	"github.com/spf13/viper":           {"config"},
	"github.com/spf13/pflag":           {"config", "cmd/*"},
	"flag":                             {"internal/dispatch/gen", "cmd/*", "cmd/internal/*"},
	"os/signal":                        {".", "cmd/*", "cmd/internal/*"},
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// below returns the path below the module; ok is false for others' packages.
func below(importPath string) (pkg string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, pkg)
		return err == nil && ok
	})
}

func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var seen []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg, _ := below(p.ImportPath)
		seen = append(seen, pkg)
		may, known := allowed(pkg)
		if !known {
			t.Errorf("%s has no line in the table of edges: add one that says what it may import", pkg)
			continue
		}
		for _, imported := range p.Imports {
			if of, ours := below(imported); ours && !matches(may, of) {
				t.Errorf("%s imports %s, which its line in the table of edges does not allow", pkg, of)
			}
			for other, by := range others {
				if (imported == other || strings.HasPrefix(imported, other+"/")) && !matches(by, pkg) {
					t.Errorf("%s imports %s, which only %s may", pkg, imported, strings.Join(by, ", "))
				}
			}
		}
		for _, imported := range append(p.TestImports, p.XTestImports...) {
			of, ours := below(imported)
			if ours && of != pkg && !strings.HasPrefix(of, pkg+"/") && !matches(may, of) && !slices.Contains(helpers, of) {
				t.Errorf("a test of %s imports %s, which is neither allowed to the package nor a test helper", pkg, of)
			}
		}
	}
	for _, want := range []string{"forward", "replay", "internal/wire"} {
		if !slices.Contains(seen, want) {
			t.Errorf("go list did not list %s: %q", want, seen)
		}
	}
}

func allowed(pkg string) (may []string, known bool) {
	for _, e := range edges {
		if matches([]string{e.pkg}, pkg) {
			return e.may, true
		}
	}
	return nil, false
}

// The table itself keeps the two halves of the stream apart.
func TestForwardAndReplayMeetOnTheWire(t *testing.T) {
	t.Parallel()
	for pkg, other := range map[string]string{"forward": "replay", "replay": "forward"} {
		if may, known := allowed(pkg); !known || matches(may, other) {
			t.Errorf("%s may import %s", pkg, other)
		}
	}
}
