package listener

import (
	"bytes"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// maxMessageDepth is how deep messages are looked for. They are at most a few
// levels down: an interaction's message and its reference, resolved messages.
const maxMessageDepth = 16

// hasComponents reports whether events called name hold messages or modals. In
// others, custom events among them, "components" is a member like any other.
func hasComponents(name string) bool {
	t := dispatch.Lookup(name)
	return t != nil && (t.Cache.Kind == dispatch.Message || t.Name == string(InteractionCreate))
}

// withoutComponents returns a copy of data in which the objects whose components
// discordgo can't decode have none, or nil if there are no such objects. They are
// messages, for one component of which discordgo gives up the whole message, and
// modals sent in, for one of which it gives up the interaction.
func withoutComponents(data []byte) []byte {
	if !bytes.Contains(data, []byte("omponents")) {
		return nil
	}
	data = bytes.Clone(data)
	if !hideComponents(bytes.TrimSpace(data), 0) {
		return nil
	}
	return data
}

// hideComponents renames the members that hold bad components to a name nothing
// decodes, in place, and reports whether there were any.
func hideComponents(data []byte, depth int) (hidden bool) {
	if depth > maxMessageDepth || len(data) == 0 {
		return false
	}
	switch data[0] {
	case '[':
		var a rawjson.Array
		for a.Reset(data); a.Next(); {
			hidden = hideComponents(a.Value, depth+1) || hidden
		}
	case '{':
		var o rawjson.Object
		for o.Reset(data); o.Next(); {
			if !rawjson.KeyIs(o.Key, "components") {
				hidden = hideComponents(o.Value, depth+1) || hidden
			} else if !knownComponents(o.Value) {
				o.Key[0] = '~'
				hidden = true
			}
		}
	}
	return hidden
}

func knownComponents(value []byte) bool {
	if rawjson.IsNull(value) {
		return true
	}
	var a rawjson.Array
	for a.Reset(value); a.Next(); {
		if _, err := discordgo.MessageComponentFromJSON(a.Value); err != nil {
			return false
		}
	}
	return a.Err() == nil
}
