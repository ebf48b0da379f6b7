package forward

import (
	"encoding/json"
	"slices"

	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
)

// bulkLimit is the least that proto-max-bulk-len can be set to: a value up to
// it is taken by every Redis.
const bulkLimit = 1 << 20

// entries turns what the gateway says into XADD commands.
type entries struct {
	keys       wire.Shard
	codec      string
	maxPayload int
	state      *state
}

// append adds the command that appends an entry to a stream, in the codec that
// is configured and can hold it.
func (w *entries) append(to *block, stream string, e *wire.Entry) {
	out := *e
	out.Codec = wire.JSON
	if w.codec == wire.Msgpack {
		payload, errPayload := transcode(e.Payload)
		state, errState := transcode(e.State)
		if errPayload == nil && errState == nil {
			out.Codec, out.Payload, out.State = wire.Msgpack, payload, state
		} else {
			w.state.metrics.jsonFallback.Inc()
		}
	}
	to.Command("XADD", 2+wire.FieldWords)
	to.Text(stream)
	to.Text("*")
	to.buf = out.AppendRESP(to.buf)
}

func transcode(text []byte) ([]byte, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return wire.ToMsgpack(make([]byte, 0, len(text)), text)
}

// slim takes the largest arrays out of an entry's payload until it has at most
// limit bytes, and leaves its state out if that is larger. It reports whether
// anything was taken.
func (w *entries) slim(e *wire.Entry, limit int) bool {
	taken := false
	for len(e.Payload) > limit {
		var (
			o       rawjson.Object
			key     []byte
			largest int
		)
		for o.Reset(e.Payload); o.Next(); {
			if o.Value[0] == '[' && len(o.Value) > max(largest, len("[]")) {
				key, largest = o.Key, len(o.Value)
			}
		}
		if largest == 0 || o.Err() != nil {
			break
		}
		name := string(key)
		e.Payload = rawjson.AppendWithout(make([]byte, 0, len(e.Payload)-largest), e.Payload, func(key, _ []byte) bool {
			return string(key) == name
		})
		taken = true
	}
	if taken {
		e.Flags |= wire.Slim
		w.state.metrics.slim.Inc()
	}
	if len(e.State) > limit {
		e.State, taken = nil, true
	}
	return taken
}

// shrink makes an item smaller that Redis cut the connection over: first slim,
// then shed. An item without a large value was not the reason; it stays.
func (w *entries) shrink(it *item, commands part) {
	if !large(commands) {
		return
	}
	kept, xadd := new(block), -1
	for i := range commands.len() {
		if i != it.xadd {
			withoutLarge(kept, commands.words(i))
			continue
		}
		if it.instead != nil || !w.slim(&it.entry, bulkLimit/2) {
			w.shed(it)
		}
		xadd = kept.len()
		w.append(kept, it.stream, &it.entry)
	}
	it.instead, it.xadd = kept, xadd
}

// shed replaces an entry by the notice that it could not be kept.
func (w *entries) shed(it *item) {
	w.state.metrics.shed.WithLabelValues(shedTooLarge).Inc()
	notice := struct {
		Event    string `json:"event"`
		Sequence int64  `json:"sequence"`
		Bytes    int    `json:"bytes"`
		Reason   string `json:"reason"`
	}{it.entry.Event, it.sequence, len(it.entry.Payload), "larger than redis takes (proto-max-bulk-len)"}
	w.state.logger.Error("dispatch shed: redis does not take a value of its size; raise proto-max-bulk-len",
		"event", it.entry.Event, "seq", it.sequence, "bytes", notice.Bytes)
	it.entry.Event = wire.EventDispatchShed
	it.entry.Payload, _ = json.Marshal(notice) // strings and numbers
	it.entry.State = nil
	it.entry.Flags = wire.Synthetic
}

// large reports whether one of the commands has a value that Redis may refuse.
func large(commands part) bool {
	for i := range commands.len() {
		if slices.ContainsFunc(commands.words(i), isLarge) {
			return true
		}
	}
	return false
}

func isLarge(word []byte) bool { return len(word) > bulkLimit }

// withoutLarge adds an HSET without its large values. Their fields are deleted
// instead: not known is true, what was before is not. Other commands stay as they
// are.
func withoutLarge(to *block, words [][]byte) {
	set, del := words, [][]byte(nil)
	if string(words[0]) == "HSET" && slices.ContainsFunc(words, isLarge) {
		set, del = words[:2:2], [][]byte{[]byte("HDEL"), words[1]}
		for i := 2; i+1 < len(words); i += 2 {
			if isLarge(words[i+1]) {
				del = append(del, words[i])
			} else {
				set = append(set, words[i], words[i+1])
			}
		}
		if len(set) == 2 {
			set = nil
		}
	}
	for _, words := range [][][]byte{set, del} {
		if len(words) == 0 {
			continue
		}
		to.Command(string(words[0]), len(words)-1)
		for _, word := range words[1:] {
			to.Bytes(word)
		}
	}
}
