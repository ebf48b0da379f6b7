package cache

import "strconv"

// maxFields bounds the fields written by one HSET, far below Redis's limit of
// 1,048,576 arguments a command.
const maxFields = 10_000

// hset gathers the fields of one hash into few commands.
type hset struct {
	key    string
	ids    []string
	values [][]byte
}

func (h *hset) add(key, id string, value []byte, w Writer) {
	h.key = key
	h.ids, h.values = append(h.ids, id), append(h.values, value)
	if len(h.ids) >= maxFields {
		h.flush(w)
	}
}

func (h *hset) flush(w Writer) {
	if len(h.ids) == 0 {
		return
	}
	w.Command("HSET", 1+2*len(h.ids))
	w.Text(h.key)
	for i, id := range h.ids {
		w.Text(id)
		w.Bytes(h.values[i])
	}
	h.ids, h.values = h.ids[:0], h.values[:0]
}

func hsetOne(w Writer, key, id string, value []byte) {
	w.Command("HSET", 3)
	w.Text(key)
	w.Text(id)
	w.Bytes(value)
}

// write hands out a command of texts.
func write(w Writer, name string, args ...string) {
	w.Command(name, len(args))
	for _, arg := range args {
		w.Text(arg)
	}
}

// writeAll hands out a command of a key and texts, if there are any.
func writeAll(w Writer, name, key string, args []string) {
	if len(args) == 0 {
		return
	}
	w.Command(name, 1+len(args))
	w.Text(key)
	for _, arg := range args {
		w.Text(arg)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
