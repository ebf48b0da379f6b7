package rawjson

import "bytes"

// A member is one member of an object that is being merged.
type member struct {
	key, value []byte
	used       bool
}

// linear is the number of members up to which a merge searches them one by one.
const linear = 48

// members holds an object's members, the last of each name.
type members struct {
	list  []member
	index map[string]int // beyond linear
}

func (m *members) find(key []byte) int {
	if m.index != nil {
		if i, ok := m.index[string(key)]; ok {
			return i
		}
		return -1
	}
	for i := range m.list {
		if bytes.Equal(m.list[i].key, key) {
			return i
		}
	}
	return -1
}

func (m *members) set(key, value []byte) {
	if i := m.find(key); i >= 0 {
		m.list[i].value = value
		return
	}
	m.list = append(m.list, member{key: key, value: value})
	switch {
	case m.index != nil:
		m.index[string(key)] = len(m.list) - 1
	case len(m.list) > linear:
		m.index = make(map[string]int, 2*len(m.list))
		for i := range m.list {
			m.index[string(m.list[i].key)] = i
		}
	}
}

// AppendMerged appends update laid over old to dst: members present in update
// overwrite old's (null too), members absent from it stay. It is shallow: nested
// objects are replaced whole. If one of the two is no object, the other is
// appended as it is (update, if neither is).
func AppendMerged(dst, old, update []byte) []byte {
	var (
		buf [linear]member
		m   = members{list: buf[:0]}
		o   Object
	)
	if !IsObject(old) {
		return append(dst, update...)
	}
	for o.Reset(update); o.Next(); {
		m.set(o.Key, o.Value)
	}
	if o.Err() != nil {
		return append(dst, old...)
	}
	start := len(dst)
	dst = append(dst, '{')
	for o.Reset(old); o.Next(); {
		if i := m.find(o.Key); i >= 0 {
			if !m.list[i].used {
				m.list[i].used = true
				dst = appendMember(dst, start, o.Key, m.list[i].value)
			}
			continue
		}
		dst = appendMember(dst, start, o.Key, o.Value)
	}
	if o.Err() != nil {
		return append(dst[:start], update...)
	}
	for i := range m.list {
		if !m.list[i].used {
			dst = appendMember(dst, start, m.list[i].key, m.list[i].value)
		}
	}
	return append(dst, '}')
}

// AppendWithout appends obj to dst without the members for which drop returns
// true. What is no object is appended as it is.
func AppendWithout(dst, obj []byte, drop func(key, value []byte) bool) []byte {
	var o Object
	start := len(dst)
	dst = append(dst, '{')
	for o.Reset(obj); o.Next(); {
		if !drop(o.Key, o.Value) {
			dst = appendMember(dst, start, o.Key, o.Value)
		}
	}
	if o.Err() != nil {
		return append(dst[:start], obj...)
	}
	return append(dst, '}')
}

// AppendEmptied appends obj to dst with the string members called by one of
// names (lower case) emptied. What is no object is appended as it is.
func AppendEmptied(dst, obj []byte, names ...string) []byte {
	var o Object
	start := len(dst)
	dst = append(dst, '{')
	for o.Reset(obj); o.Next(); {
		value := o.Value
		for _, name := range names {
			if KeyIs(o.Key, name) {
				value = emptyString
			}
		}
		dst = appendMember(dst, start, o.Key, value)
	}
	if o.Err() != nil {
		return append(dst[:start], obj...)
	}
	return append(dst, '}')
}

var emptyString = []byte(`""`)

func appendMember(dst []byte, start int, key, value []byte) []byte {
	if len(dst) > start+1 {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, key...)
	dst = append(dst, '"', ':')
	return append(dst, value...)
}
