package gateway

import (
	"errors"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// The opcodes Discord sends or takes.
// Source: https://discord.com/developers/docs/topics/opcodes-and-status-codes#gateway-gateway-opcodes
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opAck            = 11
)

// An envelope is what Discord wraps every message in. Its slices alias the
// scanned text.
type envelope struct {
	op   int64
	seq  int64  // 0: null or absent
	name []byte // t; nil: null or absent
	data []byte // d, raw; nil: absent
}

var (
	errNoOp     = errors.New("envelope: op is not an integer")
	errSequence = errors.New("envelope: s is neither an integer nor null")
	errName     = errors.New("envelope: t is neither a string nor null")
	errNoName   = errors.New("envelope: a dispatch without t")
	errTrailing = errors.New("envelope: more text behind its end")
)

// scanEnvelope finds the members of a message in one pass over its whole
// structure, in whatever order they stand. It allocates nothing but errors.
func scanEnvelope(message []byte, e *envelope) error {
	*e = envelope{op: -1}
	var o rawjson.Object
	o.Reset(message)
	for o.Next() {
		switch {
		case rawjson.KeyIs(o.Key, "d"):
			e.data = o.Value
		case rawjson.KeyIs(o.Key, "t"):
			if e.name = nil; rawjson.IsNull(o.Value) {
				continue
			}
			name, ok := rawjson.Text(o.Value)
			if !ok {
				return errName
			}
			e.name = name
		case rawjson.KeyIs(o.Key, "s"):
			if e.seq = 0; rawjson.IsNull(o.Value) {
				continue
			}
			seq, ok := rawjson.Int(o.Value)
			if !ok || seq < 0 {
				return errSequence
			}
			e.seq = seq
		case rawjson.KeyIs(o.Key, "op"):
			op, ok := rawjson.Int(o.Value)
			if !ok || op < 0 {
				return errNoOp
			}
			e.op = op
		}
	}
	if err := o.Err(); err != nil {
		return err
	}
	for _, c := range message[o.End():] {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return errTrailing
		}
	}
	if e.op < 0 {
		return errNoOp
	}
	if e.op == opDispatch && len(e.name) == 0 {
		return errNoName
	}
	return nil
}

// typeName returns a dispatch's type as a string, shared for the known types.
func typeName(name []byte) string {
	if t := dispatch.Lookup(name); t != nil {
		return t.Name
	}
	return string(name)
}

// textOf returns the string in an object's member, empty if it has none.
func textOf(obj []byte, member string) string {
	text, _ := rawjson.Text(rawjson.Get(obj, member))
	return string(text)
}
