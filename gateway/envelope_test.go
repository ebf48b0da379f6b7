package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/rawjson"
)

func TestScanEnvelope(t *testing.T) {
	t.Parallel()
	const absent = "-"
	tests := []struct {
		message string
		op, seq int64
		name    string
		data    string
	}{
		{`{"t":"READY","s":1,"op":0,"d":{"v":10}}`, 0, 1, "READY", `{"v":10}`},
		{`{"op":0,"s":2,"t":"MESSAGE_CREATE","d":{"t":"X","s":9,"op":1,"d":{}}}`, 0, 2, "MESSAGE_CREATE", `{"t":"X","s":9,"op":1,"d":{}}`},
		{` { "d" : [1, "}"] , "op" : 0 , "t" : "A\u0042" , "s" : 3 } ` + "\n", 0, 3, "AB", `[1, "}"]`},
		{`{"op":0,"s":null,"t":"TYPING_START","d":{}}`, 0, 0, "TYPING_START", `{}`},
		{`{"op":0,"t":"RESUMED","s":20}`, 0, 20, "RESUMED", absent},
		{`{"op":0,"t":"RESUMED","s":19,"d":null}`, 0, 19, "RESUMED", `null`},
		{`{"t":null,"s":null,"op":11,"d":null}`, 11, 0, "", `null`},
		{`{"op":11}`, 11, 0, "", absent},
		{`{"op":9,"d":false,"s":null,"t":null}`, 9, 0, "", `false`},
		{`{"OP":0,"T":"X","S":4,"D":1}`, 0, 4, "X", `1`},
		{`{"op":7,"op":0,"t":"Y","t":"Z","s":5,"s":6,"d":1,"d":2}`, 0, 6, "Z", `2`},
		{`{"op":0,"t":"X","s":7,"d":"\ud800","extra":{"deep":[[]]}}`, 0, 7, "X", `"\ud800"`},
	}
	for _, tt := range tests {
		op, seq, name, data, err := gateway.ScanEnvelope([]byte(tt.message))
		got := string(data)
		if data == nil {
			got = absent
		}
		if err != nil || op != tt.op || seq != tt.seq || string(name) != tt.name || got != tt.data {
			t.Errorf("scanEnvelope(%s) = %d, %d, %q, %s, %v", tt.message, op, seq, name, got, err)
		}
	}
}

func TestScanEnvelopeRefuses(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		``, `null`, `[]`, `{}`, `{"d":{}}`, `{"op":null}`, `{"op":"0","t":"X"}`, `{"op":0.5,"t":"X"}`, `{"op":-1}`,
		`{"op":0}`, `{"op":0,"t":null}`, `{"op":0,"t":""}`, `{"op":0,"t":5}`, `{"op":0,"t":"X","s":"1"}`,
		`{"op":0,"t":"X","s":-1}`, `{"op":0,"t":"X","s":1.5}`, `{"op":0,"t":"X","d":{}`, `{"op":0,"t":"X","d":{]}`,
		`{"op":0,"t":"X","d":{"a":"}`, `{"op":0,"t":"X"}{}`, `{"op":0,"t":"X"} x`, `{"op":0 "t":"X"}`, `{"op":0,"t":"X",}`,
	} {
		if _, _, _, _, err := gateway.ScanEnvelope([]byte(message)); err == nil {
			t.Errorf("scanEnvelope(%s) accepted it", message)
		}
	}
	if _, _, _, _, err := gateway.ScanEnvelope([]byte(`{"op":0,"t":"X","d":[`)); !errors.Is(err, rawjson.ErrSyntax) {
		t.Errorf("error is %v, want rawjson.ErrSyntax", err)
	}
}

func TestScanEnvelopeDoesNotAllocate(t *testing.T) {
	message := dispatchOf(2400)
	var s gateway.Scanner
	allocs := testing.AllocsPerRun(100, func() {
		if err := s.Scan(message); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// FuzzScanEnvelope: whatever encoding/json takes for an envelope is scanned to
// the same members, and nothing panics.
func FuzzScanEnvelope(f *testing.F) {
	for _, seed := range []string{
		`{"t":"READY","s":1,"op":0,"d":{"v":10}}`, `{"op":11,"d":null}`, `{"op":0,"t":"\u0041","s":null,"d":[]}`,
		`{"op":0,"T":"a","t":"b","d":"\\\""}`, `{"op":0,"t":"X","d":{"a":[{}]}} `, `{`, `{"op":1e2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		op, seq, name, data, err := gateway.ScanEnvelope(message)
		var want struct {
			Op *int64          `json:"op"`
			S  *int64          `json:"s"`
			T  *string         `json:"t"`
			D  json.RawMessage `json:"d"`
		}
		jsonErr := json.Unmarshal(message, &want)
		usable := jsonErr == nil && want.Op != nil && *want.Op >= 0 && (want.S == nil || *want.S >= 0) &&
			(*want.Op != 0 || (want.T != nil && *want.T != "")) && len(message) > 0 && bytes.TrimSpace(message)[0] == '{'
		if !usable {
			if err == nil && (op < 0 || (op == 0 && len(name) == 0)) {
				t.Fatalf("scanEnvelope(%q) accepted op %d, t %q", message, op, name)
			}
			return // looser than encoding/json in literals, by design
		}
		if strings.Contains(string(message), "ſ") || strings.Contains(string(message), `null`) {
			return // encoding/json folds more than ASCII, and keeps a value that null follows
		}
		if err != nil {
			t.Fatalf("scanEnvelope(%q): %v; encoding/json takes it", message, err)
		}
		var wantSeq int64
		if want.S != nil {
			wantSeq = *want.S
		}
		var wantName string
		if want.T != nil {
			wantName = *want.T
		}
		if op != *want.Op || seq != wantSeq || string(name) != wantName || string(data) != string(want.D) {
			t.Fatalf("scanEnvelope(%q) = %d, %d, %q, %q", message, op, seq, name, data)
		}
	})
}

// dispatchOf returns a MESSAGE_CREATE of about that many bytes.
func dispatchOf(size int) []byte {
	var d strings.Builder
	d.WriteString(`{"t":"MESSAGE_CREATE","s":12345,"op":0,"d":{"type":0,"tts":false,"timestamp":"2030-11-04T15:00:00.000000+00:00","pinned":false,"mentions":[],"member":{"roles":["900400000000000001","900400000000000002"],"nick":null},` +
		`"id":"900500000000000001","guild_id":"900100000000000001","channel_id":"900200000000000001","author":{"id":"900300000000000001","username":"quill"},"embeds":[`)
	const tail = `],"content":"done"}}`
	for n := 0; d.Len() < size-len(tail); n++ {
		if n > 0 {
			d.WriteByte(',')
		}
		fmt.Fprintf(&d, `{"type":"rich","title":"part %d","fields":[{"name":"a\"b","value":"%d","inline":true}]}`, n, n*7919)
	}
	d.WriteString(tail)
	return []byte(d.String())
}

func BenchmarkScanEnvelope(b *testing.B) {
	for _, size := range []int{800, 2400, 700_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			message := dispatchOf(size)
			b.SetBytes(int64(len(message)))
			b.ReportAllocs()
			var s gateway.Scanner
			for b.Loop() {
				if err := s.Scan(message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
