package sluice_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the pages a reader comes to, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	if err != nil || len(paths) < 5 {
		t.Fatalf("docs has %q, %v", paths, err)
	}
	all := make(map[string]string)
	for _, path := range append(paths, "README.md", "CONTRIBUTING.md") {
		all[path] = read(t, path)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block returns the first block of Go on a page.
func block(t *testing.T, page string) string {
	t.Helper()
	_, rest, _ := strings.Cut(page, "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no block of Go")
	}
	return code
}

func TestCodeOnPagesIsOfExamples(t *testing.T) {
	t.Parallel()
	worker := block(t, read(t, "README.md"))
	_, source, _ := strings.Cut(read(t, "examples/editlog/main.go"), "\npackage main")
	if worker != "package main"+source {
		t.Errorf("the worker in README.md is not examples/editlog:\n%s", worker)
	}
	lines := 0
	for line := range strings.Lines(worker) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 20 {
		t.Errorf("the worker in README.md has %d lines, want at most 20", lines)
	}
	if moved := block(t, read(t, "docs/migration.md")); !strings.HasSuffix(read(t, "examples/discordbot/main.go"), "\n"+moved) {
		t.Errorf("main in docs/migration.md is not examples/discordbot's:\n%s", moved)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

func TestLinks(t *testing.T) {
	t.Parallel()
	for path, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which there is none of", path, m[1])
				continue
			}
			if m[2] != "" && !hasAnchor(read(t, to), m[2][1:]) {
				t.Errorf("%s links to %s%s, which has no such heading", path, m[1], m[2])
			}
		}
	}
}

// hasAnchor reports whether a page has a heading that is linked to as anchor.
func hasAnchor(page, anchor string) bool {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		heading = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(heading, "")
		if strings.ReplaceAll(heading, " ", "-") == anchor {
			return true
		}
	}
	return false
}

var setting = regexp.MustCompile("(?:`|--)((?:discord|gateway|redis|cache|forward|replay|log|admin)\\.[a-z_]+)\\b[^(A-Z/]")

func TestSettingsOnPagesExist(t *testing.T) {
	t.Parallel()
	configuration, found := read(t, "docs/configuration.md"), 0
	for path, page := range pages(t) {
		for _, m := range setting.FindAllStringSubmatch(page, -1) {
			found++
			if !strings.Contains(configuration, "### `"+m[1]+"`\n") {
				t.Errorf("%s speaks of %s, which docs/configuration.md does not have", path, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d settings: the test proves little", found)
	}
}
