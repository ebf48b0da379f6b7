package gateway_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluicehq/sluice/gateway"
)

// A deflater makes messages of one zlib-stream.
type deflater struct {
	buf bytes.Buffer
	w   *zlib.Writer
}

func newDeflater(level int) *deflater {
	d := &deflater{}
	d.w, _ = zlib.NewWriterLevel(&d.buf, level)
	return d
}

func (d *deflater) message(text []byte) []byte {
	d.buf.Reset()
	d.w.Write(text)
	d.w.Flush()
	return bytes.Clone(d.buf.Bytes())
}

// TestInflate has messages that end where the window does: there a reader that
// meets the end of its input is lost.
func TestInflate(t *testing.T) {
	t.Parallel()
	for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.HuffmanOnly} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(level+10)))
			source := bytes.Repeat(dispatchOf(5000), 150)
			for i := range source {
				if r.IntN(20) == 0 {
					source[i] = byte(r.Uint32())
				}
			}
			def, inf := newDeflater(level), gateway.NewInflater(1<<20)
			defer inf.Close()
			total := 0
			for n := range 120 {
				size := 1 + r.IntN(4000)
				switch n % 4 {
				case 1: // up to the window's end exactly
					size = 32<<10 - total%(32<<10)
				case 2:
					size = 32 << 10
				}
				if n%97 == 0 {
					size = 700_000
				}
				total += size
				from := r.IntN(len(source) - size)
				text := source[from : from+size]
				packed := def.message(text)
				var parts [][]byte
				for rest := packed; len(rest) > 0; {
					cut := len(rest)
					if n%2 == 0 {
						cut = 1 + r.IntN(len(rest))
					}
					parts, rest = append(parts, rest[:cut]), rest[cut:]
				}
				out, whole, over, err := inf.Message(parts...)
				if err != nil || !whole || over || !bytes.Equal(out, text) {
					t.Fatalf("message %d of %d bytes in %d parts: %d bytes, whole %v, over %v, %v", n, size, len(parts), len(out), whole, over, err)
				}
			}
		})
	}
}

func TestInflateLimit(t *testing.T) {
	t.Parallel()
	def, inf := newDeflater(zlib.BestSpeed), gateway.NewInflater(10_000)
	defer inf.Close()
	text := dispatchOf(9000)
	for n := range 3 {
		if _, whole, over, err := inf.Message(def.message(make([]byte, 5<<20))); err != nil || !whole || !over {
			t.Fatalf("large message %d: whole %v, over %v, %v", n, whole, over, err)
		}
		out, _, over, err := inf.Message(def.message(text))
		if err != nil || over || !bytes.Equal(out, text) {
			t.Fatalf("the message behind it: %d bytes, over %v, %v", len(out), over, err)
		}
		if cap(out) > 1<<20 {
			t.Fatalf("the buffer has grown to %d bytes for a limit of 10000", cap(out))
		}
	}
}

func TestInflateRefuses(t *testing.T) {
	t.Parallel()
	inf := gateway.NewInflater(1 << 20)
	defer inf.Close()
	if _, _, _, err := inf.Message([]byte(`{"op":10}`)); err == nil {
		t.Error("text was taken for zlib")
	}
	def, inf := newDeflater(zlib.BestSpeed), gateway.NewInflater(1<<20)
	defer inf.Close()
	packed := def.message(dispatchOf(3000))
	for i := 10; i < 200; i++ {
		packed[i] ^= 0x55
	}
	out, whole, _, err := inf.Message(packed)
	if err == nil && whole && bytes.Equal(out, dispatchOf(3000)) {
		t.Error("a damaged stream gave the message")
	}
}

func FuzzInflate(f *testing.F) {
	def := newDeflater(zlib.BestSpeed)
	f.Add(def.message(dispatchOf(500)), 7)
	f.Add([]byte{0x78, 0x9c, 0, 0, 0, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, packed []byte, cut int) {
		inf := gateway.NewInflater(1 << 20)
		defer inf.Close()
		cut = min(max(cut, 0), len(packed))
		if out, _, over, err := inf.Message(packed[:cut], packed[cut:]); err == nil && !over && len(out) > 1<<20 {
			t.Fatalf("%d bytes for a limit of %d", len(out), 1<<20)
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	text := dispatchOf(2400)
	def, inf := newDeflater(zlib.BestSpeed), gateway.NewInflater(1<<20)
	defer inf.Close()
	if _, _, _, err := inf.Message(def.message(text)); err != nil {
		b.Fatal(err)
	}
	packed := def.message(text) // refers to the one before, and so does each repeat
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := inf.Message(packed); err != nil {
			b.Fatal(err)
		}
	}
}
