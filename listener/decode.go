package listener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// Decoded holds what an entry's payload and previous state were decoded to, for
// all runs of all its listeners: each kind is decoded once, when the first
// listener wants it. The zero value is ready to use; it must not be copied or
// used for another entry. Safe for concurrent use.
type Decoded struct {
	mu    sync.Mutex
	slots []*slot // guarded by mu; one for almost every entry
}

type slot struct {
	name string
	typ  reflect.Type // of the event
	once sync.Once
	// What it was decoded from; a middleware may hand on something else.
	payload, previous []byte
	value             any // *decoded[T, P]
	err               error
}

type decodedKey struct{}

type decoded[T, P any] struct {
	payload  T
	previous P
	partial  bool // previous is not all there was
}

func decode[T, P any](ctx context.Context, name string, d *Delivery) (*decoded[T, P], error) {
	shared, _ := ctx.Value(decodedKey{}).(*Decoded)
	if shared == nil {
		return decodeNow[T, P](name, d)
	}
	s := shared.slot(name, reflect.TypeFor[Event[T, P]](), d)
	s.once.Do(func() {
		s.err = errUndecoded // stays if a decoder panics
		s.value, s.err = decodeNow[T, P](name, d)
	})
	if s.err != nil {
		return nil, s.err
	}
	return s.value.(*decoded[T, P]), nil
}

var errUndecoded = Discard(errors.New("listener: the decoder of this event has panicked before"))

func (dd *Decoded) slot(name string, typ reflect.Type, d *Delivery) *slot {
	dd.mu.Lock()
	defer dd.mu.Unlock()
	for _, s := range dd.slots {
		if s.typ == typ && s.name == name && same(s.payload, d.Payload) && same(s.previous, d.Previous) {
			return s
		}
	}
	s := &slot{name: name, typ: typ, payload: d.Payload, previous: d.Previous}
	dd.slots = append(dd.slots, s)
	return s
}

// same reports whether a and b are the same bytes in memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func decodeNow[T, P any](name string, d *Delivery) (*decoded[T, P], error) {
	v := new(decoded[T, P])
	if err := payloadInto(name, d, &v.payload); err != nil {
		return nil, err
	}
	if _, none := any(v.previous).(None); !none && len(d.Previous) > 0 {
		whole, err := into(name, d.Previous, &v.previous)
		if err != nil {
			var zero P
			v.previous = zero
		}
		v.partial = err != nil || !whole
	}
	fillPayload(any(v.payload), d.GuildID)
	fillPrevious(any(v.previous), d.GuildID)
	linkPrevious(any(v.payload), any(v.previous))
	return v, nil
}

func payloadInto(name string, d *Delivery, v any) error {
	if dispatch.Lookup(name) != nil && !rawjson.IsObject(d.Payload) {
		if name == resumed {
			allocate(v) // its payload is a trace at best
			return nil
		}
		return &DecodeError{Type: name, Err: fmt.Errorf("the payload is %s, want an object", glimpse(d.Payload))}
	}
	_, err := into(name, d.Payload, v)
	if err == nil {
		return nil
	}
	return undecodable(name, d.Payload, v, err)
}

// undecodable returns the error that says at which member data could not be
// decoded into the variable v points to.
func undecodable(name string, data []byte, v any, err error) error {
	if hasComponents(name) {
		if stripped := withoutComponents(data); stripped != nil {
			data = stripped
		}
	}
	return &DecodeError{Type: name, Field: blame(data, reflect.TypeOf(v).Elem()), Err: err}
}

const resumed = "RESUMED"

func glimpse(payload []byte) string {
	if len(payload) == 0 {
		return "empty"
	}
	return string(payload[:min(len(payload), 20)])
}

// into decodes what an event called name holds into the variable v points to.
// whole is false if components had to be left out.
func into(name string, data []byte, v any) (whole bool, err error) {
	allocate(v)
	if err = unmarshal(data, v); err == nil {
		return true, nil
	}
	if !hasComponents(name) {
		return false, err
	}
	stripped := withoutComponents(data)
	if stripped == nil {
		return false, err
	}
	reset(v)
	if again := unmarshal(stripped, v); again != nil {
		return false, again
	}
	return false, nil
}

// unmarshal is json.Unmarshal without the detours of four types, each of which
// reads the text twice more: their decoders hand it on to that of what they embed.
func unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case **discordgo.MessageCreate:
		return (*v).Message.UnmarshalJSON(data)
	case **discordgo.MessageUpdate:
		return (*v).Message.UnmarshalJSON(data)
	case **discordgo.MessageDelete:
		return (*v).Message.UnmarshalJSON(data)
	case **discordgo.InteractionCreate:
		return (*v).Interaction.UnmarshalJSON(data)
	}
	return json.Unmarshal(data, v)
}

// reset gives the variable v points to its first value back: a failed decode has
// left its traces.
func reset(v any) {
	reflect.ValueOf(v).Elem().SetZero()
	allocate(v)
}

// allocate makes the struct that the variable v points to points to, and the
// structs it embeds by pointer: encoding/json makes an embedded one only if the
// text has a member of it, and a listener should not have to ask.
func allocate(v any) {
	p := reflect.ValueOf(v).Elem()
	if p.Kind() != reflect.Pointer || p.Type().Elem().Kind() != reflect.Struct {
		return
	}
	s := reflect.New(p.Type().Elem())
	for i := range s.Elem().NumField() {
		f := s.Elem().Type().Field(i)
		if f.Anonymous && f.IsExported() && f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
			s.Elem().Field(i).Set(reflect.New(f.Type.Elem()))
		}
	}
	p.Set(s)
}
