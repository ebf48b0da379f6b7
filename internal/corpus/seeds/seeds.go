// Package seeds holds more recorded sessions like package corpus's, of other
// guilds and in another order, for tests only: no program carries them.
//
// What was known before their dispatches is not stored but pinned by a hash; the
// cache's model tells it, and is held to the hash.
package seeds

import (
	"embed"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/sluicehq/sluice/internal/corpus"
)

//go:embed testdata
var files embed.FS

// A Session is one recorded session of one shard: READY, the GUILD_CREATEs, then
// mixed dispatches.
type Session struct {
	Name       string // of its file in testdata
	Dispatches int    // READY included
	States     int    // dispatches before which something was known
	// Hash is the hexadecimal SHA-256 of a line for each of the States:
	//
	//	fmt.Sprintf("%d %s %s\n", sequence, eventType, previous)
	//
	// where previous is JSON without spaces, members sorted, as encoding/json
	// writes a value that it has decoded with UseNumber.
	Hash string
}

// Sessions are all there are, the smallest first.
var Sessions = [...]Session{
	{"seed-7", 705, 316, "17b066b491267671ff159f5494149c5a469b91161d066d8d1d2850319869ac80"},
	{"seed-1009", 706, 313, "102c6126e024c04a3043d424ff2978ff87fe1fcc27b462279703f76858db710e"},
	{"large", 8021, 3077, "eb17863eaf8a6b96ef5f64d0a5906d6de914ca9b608c614a759bb130c8ca3b88"}, // 20 guilds, the largest with 5,000 members
}

// Open returns the session's envelopes, one a line. The longest has 3.4 MB.
func (s Session) Open() io.ReadCloser {
	file, err := files.Open("testdata/" + s.Name + ".jsonl.zst")
	if err != nil {
		panic("seeds: " + err.Error())
	}
	r, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic("seeds: " + s.Name + ": " + err.Error())
	}
	return r.IOReadCloser()
}

// Envelopes returns the session's envelopes in order.
func (s Session) Envelopes() []corpus.Envelope {
	r := s.Open()
	defer r.Close()
	all, err := corpus.Read(r)
	if err != nil {
		panic("seeds: " + s.Name + ": " + err.Error())
	}
	return all
}
