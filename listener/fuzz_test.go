package listener_test

import (
	"errors"
	"testing"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/listener"
)

func FuzzDecode(f *testing.F) {
	index := map[string]int{}
	for i := range probes {
		index[probes[i].name] = i
	}
	for _, e := range corpus.Dispatches() {
		if len(e.Payload) < 8192 {
			f.Add(uint8(index[e.Type]), []byte(e.Payload), []byte(nil))
			f.Add(uint8(index[e.Type]), []byte(e.Payload), []byte(e.Payload))
		}
	}
	for _, text := range []string{known, unknown, `{}`, `null`, `[]`, `[` + unknown + `]`} {
		f.Add(uint8(index["MESSAGE_UPDATE"]), []byte(text), []byte(text))
		f.Add(uint8(index["MESSAGE_DELETE_BULK"]), []byte(`{"ids":[]}`), []byte(text))
	}
	f.Fuzz(func(t *testing.T, n uint8, payload, previous []byte) {
		p := &probes[int(n)%len(probes)]
		d := listener.Delivery{Type: p.name, GuildID: "1", Payload: payload, Previous: previous}
		got, err := see(t, d)
		if _, ok := errors.AsType[*listener.DecodeError](err); err != nil && !ok {
			t.Fatalf("%s %q, %q: error %v, want none or a DecodeError", p.name, payload, previous, err)
		}
		if err != nil {
			return
		}
		if got.payload == nil {
			t.Fatalf("%s %q: the listener was not called", p.name, payload)
		}
		_, err = got.merged()
		_, ok := errors.AsType[*listener.DecodeError](err)
		if err != nil && !ok && err != listener.ErrRemoved && err != listener.ErrNotKnown && err != listener.ErrNoEntity {
			t.Fatalf("%s %q, %q: Merged: error %v", p.name, payload, previous, err)
		}
	})
}
