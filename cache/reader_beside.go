package cache

import (
	"bytes"
	"strings"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// A beside is a value that lies beside an entity, in the field <id>:<name> of
// the entity's hash: what other dispatches than the entity's own say of it.
type beside struct {
	name dispatch.Beside
	over func(entity, value []byte) []byte // lays it over
}

// besides has, by kind, what can lie beside an entity.
var besides = map[dispatch.Kind][]beside{
	dispatch.Channel: {{dispatch.Voice, overAll}},
	dispatch.Guild:   {{dispatch.MemberCount, overMember("member_count")}},
	dispatch.Message: {{dispatch.Reactions, overMember("reactions")}, {dispatch.Poll, overPoll}},
	dispatch.Thread:  {{dispatch.Voice, overAll}, {dispatch.MemberCount, overMember("member_count")}},
}

// fieldsOf returns the fields of an entity: its own and those beside it.
func fieldsOf(kind dispatch.Kind, id string) []string {
	fields := []string{id}
	for _, b := range besides[kind] {
		fields = append(fields, id+":"+string(b.name))
	}
	return fields
}

// isBeside reports whether a field of a hash is not an entity: no id has a colon.
func isBeside(field string) bool { return strings.IndexByte(field, ':') >= 0 }

// entityOf makes an entity of the values of its fields, absent ones empty: what
// lies beside it is laid over it, the mark of one that is known in part is taken
// off. ok is false if there is no entity.
func entityOf(kind dispatch.Kind, id string, values []string) (e entity, ok bool) {
	if values[0] == "" {
		return entity{}, false
	}
	e = entity{id: id, raw: bytes.TrimLeft([]byte(values[0]), " "), partial: values[0][0] == ' '}
	for i, b := range besides[kind] {
		if value := values[i+1]; value != "" {
			e.raw = b.over(e.raw, []byte(value))
		}
	}
	return e, true
}

// texts returns the values of an HMGET as text, empty where there is none.
func texts(values []any) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i], _ = value.(string)
	}
	return all
}

func overAll(entity, value []byte) []byte { return rawjson.AppendMerged(nil, entity, value) }

func overMember(name string) func(entity, value []byte) []byte {
	return func(entity, value []byte) []byte { return overAll(entity, object1(name, value)) }
}

// overPoll lays the counts of a poll's answers over a message.
func overPoll(message, value []byte) []byte {
	poll := rawjson.Get(message, "poll")
	if !rawjson.IsObject(poll) {
		return message
	}
	results := value
	if before := rawjson.Get(poll, "results"); rawjson.IsObject(before) {
		results = overAll(before, value)
	}
	return overAll(message, object1("poll", overAll(poll, object1("results", results))))
}

// object1 returns a JSON object with one member.
func object1(name string, value []byte) []byte {
	text := make([]byte, 0, len(name)+len(value)+5)
	text = append(append(text, '{', '"'), name...)
	text = append(append(text, '"', ':'), value...)
	return append(text, '}')
}

// withoutGone leaves out of a member's roles those that the guild does not have,
// as no dispatch takes a deleted role from its members. Without known roles
// (their kind may be switched off) the member stays as it is.
func withoutGone(member []byte, roles map[string]struct{}) []byte {
	if len(roles) == 0 {
		return member
	}
	var a rawjson.Array
	list, gone := []byte{'['}, false
	for a.Reset(rawjson.Get(member, "roles")); a.Next(); {
		if _, is := roles[string(rawjson.ID(a.Value))]; !is {
			gone = true
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, a.Value...)
	}
	if !gone {
		return member
	}
	return overAll(member, object1("roles", append(list, ']')))
}

func setOf(ids []string) map[string]struct{} {
	set := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return set
}
