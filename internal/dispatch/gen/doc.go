package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// docName is the page that has the table of dispatches, between docBegin and docEnd.
const (
	docName  = "docs/cache.md"
	docBegin = "<!-- dispatches: written by go generate ./internal/dispatch -->\n"
	docEnd   = "<!-- end of dispatches -->\n"
)

// doc returns page with the table of dispatches in it.
func doc(page []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(docBegin))
	_, after, closed := bytes.Cut(rest, []byte(docEnd))
	if !ok || !closed {
		return nil, fmt.Errorf("want a line %q and behind it a line %q", docBegin, docEnd)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(docBegin)
	b.WriteString("| dispatch | state | reads | writes | removes |\n|---|---|---|---|---|\n")
	var ignored []string
	for i := range dispatch.Types {
		t := &dispatch.Types[i]
		if t.Cache.Do == dispatch.Ignore {
			ignored = append(ignored, t.Name)
			continue
		}
		r, err := describe(t)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Name, r.state, r.reads, r.writes, r.removes)
	}
	fmt.Fprintf(&b, "\nNeither read nor written for: %s.\n", strings.Join(ignored, ", "))
	b.WriteString(docEnd)
	b.Write(after)
	return b.Bytes(), nil
}

// A row says what the cache does for a dispatch.
type row struct{ state, reads, writes, removes string }

// describe puts a line of the table into words.
func describe(t *dispatch.Type) (row, error) {
	rule := t.Cache
	kind := words(rule.Kind)
	beside := "`" + string(rule.Beside) + "`"
	var r row
	switch rule.Do {
	case dispatch.Put:
		r = row{writes: kind}
	case dispatch.Replace:
		r = row{state: kind, reads: kind, writes: kind}
	case dispatch.Merge, dispatch.MergeVoice:
		r = row{state: kind, reads: kind, writes: kind}
	case dispatch.MergeKnown:
		r = row{state: kind, reads: kind, writes: kind + ", if cached"}
	case dispatch.GuildUpdate:
		r = row{state: kind, reads: kind, writes: kind + " without what it nests"}
	case dispatch.Remove:
		r = row{state: kind, reads: kind, removes: kind}
	case dispatch.RemoveMany:
		r = row{state: "array of the " + kind + "s that were cached", reads: kind + "s", removes: kind + "s"}
	case dispatch.PutList:
		r = row{state: "array of " + kind + " before", reads: kind, writes: kind}
	case dispatch.MergeList:
		r = row{reads: "the " + kind + "s listed", writes: "the " + kind + "s listed"}
	case dispatch.ReplaceList:
		r = row{writes: "the " + kind + "s listed", removes: "the guild's other " + kind + "s"}
	case dispatch.SyncThreads:
		r = row{state: "array of the " + kind + "s that are active no more", reads: "the guild's " + kind + "s", writes: "the " + kind + "s listed, the bot's thread members",
			removes: "the " + kind + "s that are active no more, with their thread members and messages"}
	case dispatch.ThreadMembers:
		r = row{state: "array of the removed " + kind + "s that were cached", reads: "thread, removed " + kind + "s", writes: "added " + kind + "s, " + beside + " beside the thread", removes: "removed " + kind + "s"}
	case dispatch.MembersChunk:
		r = row{reads: "members and presences listed", writes: "members and presences listed"}
	case dispatch.GuildCreate:
		r = row{reads: "ids of the guild's threads", writes: "guild, and each " + list(nested()) + " listed; the bot's thread members",
			removes: "of each list that it has what is not in it (members: only if the list is complete); thread members; `member_count`"}
	case dispatch.GuildDelete:
		r = row{state: kind, reads: kind + ", ids of its threads", removes: "unless `unavailable`: everything of the guild"}
	case dispatch.Ready:
		r = row{writes: "the bot's user, the guilds announced"}
	case dispatch.Raise, dispatch.Lower:
		r = row{reads: kind + ", " + beside + " beside it", writes: beside + ", if the " + kind + " is cached"}
	case dispatch.Clear:
		r = row{state: "array in " + beside + " before", reads: kind + ", " + beside + " beside it", writes: beside + ", if the " + kind + " is cached"}
	case dispatch.ClearOne:
		r = row{state: "the one of " + beside + " before", reads: kind + ", " + beside + " beside it", writes: beside + ", if the " + kind + " is cached"}
	case dispatch.Lay:
		r = row{state: kind + " with " + beside + " before laid over", reads: kind + ", " + beside + " beside it", writes: beside + ", if the " + kind + " is cached"}
	case dispatch.LayList:
		r = row{reads: "the " + kind + "s listed, " + beside + " beside them", writes: beside + " beside those that are cached"}
	default:
		return r, fmt.Errorf("%s: no words for action %d", t.Name, rule.Do)
	}
	if rule.Part {
		r.state += " (`partial` if it was never seen whole)"
	}
	if rule.Do == dispatch.Remove {
		r.removes = join(r.removes, cascades[rule.Kind])
	}
	if rule.Do == dispatch.MergeVoice {
		r.removes = kind + ", if `channel_id` is null; `left`"
	}
	if rule.Do == dispatch.Replace && rule.Kind == dispatch.Member {
		r.removes = join(r.removes, "`left` beside the voice state")
	}
	if rule.Beside == dispatch.MemberCount && rule.Kind == dispatch.Member {
		r.reads, r.writes = join(r.reads, "guild, "+beside+" beside it"), join(r.writes, beside+" beside the guild")
	}
	if rule.Member != dispatch.NoField && rule.Do == dispatch.Put {
		r.writes = join(r.writes, "the bot's thread member")
	}
	if rule.Do == dispatch.Merge || rule.Do == dispatch.MergeKnown || rule.Do == dispatch.GuildUpdate || rule.Do == dispatch.Put && rule.Kind == dispatch.Thread {
		for _, b := range dispatch.Besides {
			if b.Kind == rule.Kind && b.By != dispatch.NoField {
				r.removes = join(r.removes, "`"+string(b.Beside)+"`, if it has `"+b.By.Name()+"`")
			}
		}
	}
	return r, nil
}

// cascades says what goes with an entity of a kind.
var cascades = map[dispatch.Kind]string{
	dispatch.Channel: "its threads and their thread members, the messages in it and in them, its stage instance, the voice states in it",
	dispatch.Member:  "presence, voice state (moved to `left` beside it)",
	dispatch.Thread:  "its thread members, the messages in it",
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

func list(items []string) string {
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

// nested returns the lists that a guild nests, in words.
func nested() []string {
	var names []string
	for _, name := range dispatch.Nested {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(name, "_", " "), "guild "), "s"))
	}
	return names
}

func words(kind dispatch.Kind) string { return strings.ReplaceAll(string(kind), "_", " ") }
