package dispatch_test

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
)

func TestTableHasEveryTypeOnceInOrder(t *testing.T) {
	t.Parallel()
	if n := len(dispatch.Types); n != 79 {
		t.Errorf("%d types, want 79", n)
	}
	for i := range dispatch.Types {
		name := dispatch.Types[i].Name
		if !dispatch.IsType(name) {
			t.Errorf("%q is not written as a type", name)
		}
		if i > 0 && name <= dispatch.Types[i-1].Name {
			t.Errorf("%s stands behind %s", name, dispatch.Types[i-1].Name)
		}
		if dispatch.Lookup(name) != &dispatch.Types[i] {
			t.Errorf("Lookup(%q) is another line", name)
		}
	}
	for _, e := range corpus.Dispatches() {
		if dispatch.Lookup(e.Type) == nil {
			t.Errorf("%s is recorded and not in the table", e.Type)
		}
	}
	if got := dispatch.Lookup("LANTERN_NUMBERS"); got != nil {
		t.Errorf("an unknown type has the line of %s", got.Name)
	}
}

// shapes says what a line must have for what its rule does.
var shapes = map[dispatch.Action]struct{ id, object, previous, list bool }{
	dispatch.Ignore:        {},
	dispatch.Put:           {id: true},
	dispatch.Replace:       {id: true, previous: true},
	dispatch.Merge:         {id: true, previous: true},
	dispatch.MergeKnown:    {id: true, previous: true},
	dispatch.MergeVoice:    {id: true, previous: true},
	dispatch.Remove:        {id: true, previous: true},
	dispatch.RemoveMany:    {id: true, previous: true, list: true},
	dispatch.PutList:       {id: true, object: true, previous: true, list: true},
	dispatch.MergeList:     {object: true},
	dispatch.ReplaceList:   {object: true},
	dispatch.SyncThreads:   {object: true, previous: true, list: true},
	dispatch.ThreadMembers: {id: true, previous: true, list: true},
	dispatch.MembersChunk:  {},
	dispatch.GuildCreate:   {id: true},
	dispatch.GuildUpdate:   {id: true, previous: true},
	dispatch.GuildDelete:   {id: true, previous: true},
	dispatch.Ready:         {id: true, object: true},
	dispatch.Raise:         {id: true},
	dispatch.Lower:         {id: true},
	dispatch.Clear:         {id: true, previous: true, list: true},
	dispatch.ClearOne:      {id: true, previous: true},
	dispatch.Lay:           {id: true, previous: true},
	dispatch.LayList:       {object: true},
}

// ofTheValue are the actions whose previous state is, or has in it, the value beside
// an entity.
var ofTheValue = map[dispatch.Action]bool{dispatch.Clear: true, dispatch.ClearOne: true, dispatch.Lay: true}

func TestLinesDoNotContradictThemselves(t *testing.T) {
	t.Parallel()
	type state struct {
		kind   dispatch.Kind
		beside dispatch.Beside
	}
	previous := map[state]string{}
	for i := range dispatch.Types {
		d := &dispatch.Types[i]
		rule := d.Cache
		shape, ok := shapes[rule.Do]
		if !ok {
			t.Errorf("%s: unknown action %d", d.Name, rule.Do)
			continue
		}
		if (rule.Do == dispatch.Ignore) != (rule.Kind == "") {
			t.Errorf("%s: action %d on kind %q", d.Name, rule.Do, rule.Kind)
		}
		if (rule.ID != dispatch.NoField) != shape.id {
			t.Errorf("%s: action %d with id in field %d", d.Name, rule.Do, rule.ID)
		}
		if role := rule.Object == dispatch.RoleObject; (rule.Object != dispatch.NoField) != (shape.object || role) {
			t.Errorf("%s: action %d with entity in field %d", d.Name, rule.Do, rule.Object)
		}
		if (d.Previous != "") != shape.previous {
			t.Errorf("%s: action %d with previous state %q", d.Name, rule.Do, d.Previous)
		}
		if d.Previous != "" && strings.HasPrefix(d.Previous, "[]") != shape.list {
			t.Errorf("%s: action %d with previous state %s", d.Name, rule.Do, d.Previous)
		}
		if element := strings.TrimPrefix(d.Previous, "[]"); d.Previous != "" {
			of := state{kind: rule.Kind}
			if ofTheValue[rule.Do] {
				of.beside = rule.Beside
			}
			if have := previous[of]; have != "" && have != element {
				t.Errorf("%s: a %s is a %s here and a %s elsewhere", d.Name, of, element, have)
			}
			previous[of] = element
		}
		for _, typ := range []string{d.Payload, strings.TrimPrefix(d.Previous, "[]")} {
			if typ != "" && !strings.HasPrefix(typ, "*discordgo.") && !strings.HasPrefix(typ, "*discord.") {
				t.Errorf("%s: Go type %s", d.Name, typ)
			}
		}
		if rule.Kind != "" && !slices.Contains(dispatch.Kinds[:], rule.Kind) {
			t.Errorf("%s: %s is not among the kinds", d.Name, rule.Kind)
		}
		if rule.Beside != "" && !slices.ContainsFunc(dispatch.Besides[:], isBeside(rule)) {
			t.Errorf("%s: %q is not among the values beside a %s", d.Name, rule.Beside, rule.Kind)
		}
		if d.Payload == "" {
			t.Errorf("%s: no Go type", d.Name)
		}
		if d.Express != (d.Name == "INTERACTION_CREATE") {
			t.Errorf("%s: Express = %v", d.Name, d.Express)
		}
	}
}

// isBeside finds a rule's line among Besides. Members are counted beside the guild
// they are of, a thread's beside the thread.
func isBeside(rule dispatch.Rule) func(struct {
	Kind   dispatch.Kind
	Beside dispatch.Beside
	By     dispatch.Field
}) bool {
	kind := rule.Kind
	switch kind {
	case dispatch.Member:
		kind = dispatch.Guild
	case dispatch.ThreadMember:
		kind = dispatch.Thread
	}
	return func(b struct {
		Kind   dispatch.Kind
		Beside dispatch.Beside
		By     dispatch.Field
	}) bool {
		return b.Kind == kind && b.Beside == rule.Beside
	}
}

func TestEveryKindIsFilled(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(dispatch.Kinds[:]) {
		t.Errorf("the kinds are not in order: %v", dispatch.Kinds)
	}
	for _, kind := range dispatch.Kinds {
		if !slices.ContainsFunc(dispatch.Types[:], func(d dispatch.Type) bool { return d.Cache.Kind == kind }) {
			t.Errorf("no dispatch has anything to do with %s", kind)
		}
	}
}

func TestRecordedEntitiesAreWhereTheTableSays(t *testing.T) {
	t.Parallel()
	var f dispatch.Fields
	for _, e := range corpus.Dispatches() {
		rule := dispatch.Lookup(e.Type).Cache
		if err := f.Scan(e.Payload); err != nil {
			t.Fatal(err)
		}
		list := rule.ID == dispatch.IDs || rule.ID == dispatch.RemovedIDs
		if rule.ID != dispatch.NoField && !list && f.ID(rule.ID) == nil {
			t.Errorf("%s: no id in field %d", e.Type, rule.ID)
		}
		if list && f.Raw(rule.ID) == nil {
			t.Errorf("%s: no ids", e.Type)
		}
		if rule.Object != dispatch.NoField && f.Raw(rule.Object) == nil {
			t.Errorf("%s: no entity in field %d", e.Type, rule.Object)
		}
	}
}

func TestExpectedStatesAreOfTheTablesKinds(t *testing.T) {
	t.Parallel()
	r := corpus.Expected()
	defer r.Close()
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			T, Kind  string
			Previous json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if seen[e.T] {
			continue
		}
		seen[e.T] = true
		d := dispatch.Lookup(e.T)
		kind := string(d.Cache.Kind)
		if d.Cache.Do == dispatch.RemoveMany {
			kind += "s"
		}
		if kind != e.Kind || d.Previous == "" || (e.Previous[0] == '[') != strings.HasPrefix(d.Previous, "[]") {
			t.Errorf("%s: the recorded state is a %s %.20s, in the table %s %s", e.T, e.Kind, e.Previous, kind, d.Previous)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 26 {
		t.Errorf("%d types have recorded states, want 26: %v", len(seen), seen)
	}
}

func TestIsNested(t *testing.T) {
	t.Parallel()
	for _, name := range dispatch.Nested {
		if !dispatch.IsNested([]byte(name)) || !dispatch.IsNested([]byte(strings.ToUpper(name))) {
			t.Errorf("IsNested(%q) = false", name)
		}
	}
	if dispatch.IsNested([]byte("name")) {
		t.Error(`IsNested("name") = true`)
	}
	// In the recorded guild every list of objects is nested.
	var guild map[string]json.RawMessage
	if err := json.Unmarshal(corpus.Dispatch("GUILD_CREATE").Payload, &guild); err != nil {
		t.Fatal(err)
	}
	for name, value := range guild {
		if strings.HasPrefix(string(value), "[{") && !dispatch.IsNested([]byte(name)) {
			t.Errorf("%s holds entities and is not in Nested", name)
		}
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	name := []byte("MESSAGE_REACTION_REMOVE_EMOJI")
	if n := testing.AllocsPerRun(100, func() { dispatch.Lookup(name) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
