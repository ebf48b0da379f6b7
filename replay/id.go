package replay

import (
	"cmp"
	"strconv"
)

// An entryID is the id of an entry in its stream.
type entryID struct{ ms, seq uint64 }

func (id entryID) compare(other entryID) int {
	return cmp.Or(cmp.Compare(id.ms, other.ms), cmp.Compare(id.seq, other.seq))
}

// next returns the id after id: Redis knows "(id" for it, embedded ones do not.
func (id entryID) next() entryID {
	if id.seq++; id.seq == 0 {
		id.ms++
	}
	return id
}

func (id entryID) append(b []byte) []byte {
	b = strconv.AppendUint(b, id.ms, 10)
	b = append(b, '-')
	return strconv.AppendUint(b, id.seq, 10)
}

func (id entryID) String() string { return string(id.append(nil)) }

// parseID reads <ms>-<seq>, or <ms> alone for its first id.
func parseID[S string | []byte](text S) (id entryID, ok bool) {
	ms, rest, ok := digits(text)
	if !ok {
		return entryID{}, false
	}
	if len(rest) == 0 {
		return entryID{ms: ms}, true
	}
	if rest[0] != '-' {
		return entryID{}, false
	}
	seq, rest, ok := digits(rest[1:])
	return entryID{ms, seq}, ok && len(rest) == 0
}

// digits reads a decimal number at the start of text.
func digits[S string | []byte](text S) (n uint64, rest S, ok bool) {
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		d := uint64(text[i] - '0')
		if n > (1<<64-1-d)/10 {
			return 0, rest, false
		}
		n = n*10 + d
	}
	return n, text[i:], i > 0
}

// deliveryID returns the id that is unique in the deployment: that of the stream
// (0/3, 0/x3) and of the entry in it.
func deliveryID(stream string, id entryID) string {
	var buf [64]byte
	b := append(append(buf[:0], stream...), '/')
	return string(id.append(b))
}
