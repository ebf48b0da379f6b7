package rawjson

import "bytes"

// A member is one member of an object that is being merged.
type member struct {
	key, value []byte
	used       bool
}

// linear is the number of members up to which a merge searches them one by one.
const linear = 48

// find returns where key is in list, or -1. index is nil for a short list.
func find(list []member, index map[string]int, key []byte) int {
	if index != nil {
		if i, ok := index[string(key)]; ok {
			return i
		}
		return -1
	}
	for i := range list {
		if bytes.Equal(list[i].key, key) {
			return i
		}
	}
	return -1
}

func indexOf(list []member) map[string]int {
	index := make(map[string]int, 2*len(list))
	for i := range list {
		index[string(list[i].key)] = i
	}
	return index
}

// AppendMerged appends update laid over old to dst: members present in update
// overwrite old's (null too), members absent from it stay. It is shallow: nested
// objects are replaced whole. If one of the two is no object, the other is
// appended as it is (update, if neither is).
func AppendMerged(dst, old, update []byte) []byte {
	var (
		buf   [linear]member
		list  = buf[:0] // the last of each name
		index map[string]int
		o     Object
	)
	if !IsObject(old) {
		return append(dst, update...)
	}
	for o.Reset(update); o.Next(); {
		if i := find(list, index, o.Key); i >= 0 {
			list[i].value = o.Value
			continue
		}
		list = append(list, member{key: o.Key, value: o.Value})
		if index != nil {
			index[string(o.Key)] = len(list) - 1
		} else if len(list) > linear {
			index = indexOf(list)
		}
	}
	if o.Err() != nil {
		return append(dst, old...)
	}
	start := len(dst)
	dst = append(dst, '{')
	for o.Reset(old); o.Next(); {
		if i := find(list, index, o.Key); i >= 0 {
			if !list[i].used {
				list[i].used = true
				dst = appendMember(dst, start, o.Key, list[i].value)
			}
			continue
		}
		dst = appendMember(dst, start, o.Key, o.Value)
	}
	if o.Err() != nil {
		return append(dst[:start], update...)
	}
	for i := range list {
		if !list[i].used {
			dst = appendMember(dst, start, list[i].key, list[i].value)
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
