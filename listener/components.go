package listener

import (
	"bytes"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// maxMessageDepth is how deep messages are looked for. They are at most a few
// levels down: an interaction's message and its reference, resolved messages.
const maxMessageDepth = 16

// withoutComponents returns a copy of data in which the messages whose components
// discordgo can't decode have none, or nil if there are no such messages.
// discordgo gives up a whole message for one component it does not know.
//
// What a user has entered into a modal also comes as components, of an
// interaction's data. To leave that out would be to invent an answer, so it stays
// where it is and fails.
func withoutComponents(data []byte) []byte {
	if !bytes.Contains(data, []byte("omponents")) {
		return nil
	}
	data = bytes.Clone(data)
	if !hideComponents(data, "", 0) {
		return nil
	}
	return data
}

// hideComponents renames the members that hold bad components to a name nothing
// decodes, in place, and reports whether there were any. name is that of the
// member that data is the value of.
func hideComponents(data []byte, name string, depth int) (hidden bool) {
	if depth > maxMessageDepth || len(data) == 0 {
		return false
	}
	switch data[0] {
	case '[':
		var a rawjson.Array
		for a.Reset(data); a.Next(); {
			hidden = hideComponents(a.Value, "", depth+1) || hidden
		}
	case '{':
		var o rawjson.Object
		for o.Reset(data); o.Next(); {
			switch {
			case rawjson.KeyIs(o.Key, "components"):
				if name != "data" && !knownComponents(o.Value) {
					o.Key[0] = '~'
					hidden = true
				}
			case rawjson.KeyIs(o.Key, "data"):
				hidden = hideComponents(o.Value, "data", depth+1) || hidden
			default:
				hidden = hideComponents(o.Value, "", depth+1) || hidden
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
