package cachemodel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// message takes the dispatches about messages; others change nothing.
func (m *Model) message(name, d string) State {
	channel := id(d, "channel_id")
	path := "message_id"
	if name == "MESSAGE_CREATE" || name == "MESSAGE_UPDATE" || name == "MESSAGE_DELETE" {
		path = "id"
	}
	message := id(d, path)
	key := m.bucket(channel, message)
	old, known := m.get(key, message)
	switch name {
	case "MESSAGE_CREATE":
		if key != "" {
			m.scopes[channel] = cmp.Or(id(d, "guild_id"), channel)
		}
		m.set(key, message, d)
	case "MESSAGE_UPDATE":
		if !known {
			return State{}
		}
		for _, beside := range []string{"reactions", "poll"} {
			if member(d, beside) != "" {
				m.remove(key, message+":"+beside)
			}
		}
		return m.layOver(key, message, d, whole)
	case "MESSAGE_DELETE":
		m.remove(key, message)
		return taken(old)
	case "MESSAGE_DELETE_BULK":
		return m.takeList(elements(member(d, "ids")), func(message string) string {
			key := m.bucket(channel, message)
			value, _ := m.get(key, message)
			m.remove(key, message)
			return value
		})
	case "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE", "MESSAGE_REACTION_REMOVE_ALL", "MESSAGE_REACTION_REMOVE_EMOJI":
		if known {
			return m.reaction(name, key, message, old, d)
		}
	case "MESSAGE_POLL_VOTE_ADD", "MESSAGE_POLL_VOTE_REMOVE":
		if known && isObject(member(old, "poll")) {
			m.vote(name == "MESSAGE_POLL_VOTE_ADD", key, message, old, d)
		}
	}
	return State{}
}

// bucket returns the hash a message is in: one for its channel and quarter of an
// hour, as the id tells it.
func (m *Model) bucket(channel, message string) string {
	if m.off["message"] || channel == "" || message == "" {
		return ""
	}
	number, err := strconv.ParseUint(message, 10, 64)
	if err != nil {
		number = 0
	}
	const quarter = 15 * 60 * 1000
	return "message:" + channel + ":" + strconv.FormatUint(number>>22/quarter, 10)
}

// dropMessages removes all messages of a channel.
func (m *Model) dropMessages(channel string) {
	for key := range m.content {
		if strings.HasPrefix(key, "message:"+channel+":") {
			m.drop(key)
		}
	}
}

// Trim drops the oldest messages of every channel that has more than most.
func (m *Model) Trim(most int) {
	type place struct {
		key, id string
		age     uint64
	}
	channels := make(map[string][]place)
	for key := range m.content {
		if name, ok := strings.CutPrefix(key, "message:"); ok {
			channel, _, _ := strings.Cut(name, ":")
			for _, id := range m.ids(key) {
				age, _ := strconv.ParseUint(id, 10, 64)
				channels[channel] = append(channels[channel], place{key, id, age})
			}
		}
	}
	for _, all := range channels {
		slices.SortFunc(all, func(a, b place) int { return cmp.Compare(b.age, a.age) })
		for _, old := range all[min(most, len(all)):] {
			m.remove(old.key, old.id)
		}
	}
}

// A reaction is one emoji on a message: what it counts, and the rest as it came.
type reaction struct {
	rest                 map[string]json.RawMessage
	count, burst, normal int
	me, meBurst          bool
}

func newReaction(raw string) *reaction {
	r := &reaction{me: member(raw, "me") == "true", meBurst: member(raw, "me_burst") == "true"}
	decode(raw, &r.rest)
	r.count, _ = number(raw, "count")
	if details := member(raw, "count_details"); isObject(details) {
		r.burst, _ = number(details, "burst")
		r.normal, _ = number(details, "normal")
	} else {
		r.normal = r.count
	}
	return r
}

func (r *reaction) String() string {
	return overlay(encode(r.rest), encode(map[string]any{
		"count": r.count, "count_details": map[string]int{"burst": r.burst, "normal": r.normal}, "me": r.me, "me_burst": r.meBurst,
	}))
}

// sameEmoji compares by id, else by name.
func sameEmoji(a, b string) bool {
	if id(a, "id") != "" || id(b, "id") != "" {
		return id(a, "id") == id(b, "id")
	}
	return id(a, "name") == id(b, "name")
}

// reaction keeps a message's reactions beside it.
func (m *Model) reaction(name, key, message, value, d string) (before State) {
	kept, ok := m.get(key, message+":reactions")
	if !ok {
		if kept = member(value, "reactions"); !isArray(kept) {
			kept = "[]"
		}
	}
	all, emoji := elements(kept), member(d, "emoji")
	at := slices.IndexFunc(all, func(r string) bool { return sameEmoji(member(r, "emoji"), emoji) })
	switch {
	case name == "MESSAGE_REACTION_REMOVE_ALL":
		before.Previous, all = []byte(kept), nil
	case id(emoji, "id") == "" && id(emoji, "name") == "":
		return State{} // of no emoji
	case name == "MESSAGE_REACTION_ADD":
		if at < 0 {
			at = len(all)
			all = append(all, `{"emoji":`+emoji+`,"burst_colors":[]}`)
		}
		r := newReaction(all[at])
		if !m.addReaction(r, d) {
			return State{}
		}
		all[at] = r.String()
	case at < 0:
		return State{}
	case name == "MESSAGE_REACTION_REMOVE_EMOJI":
		before.Previous = []byte(all[at])
		all = slices.Delete(all, at, at+1)
	default:
		r := newReaction(all[at])
		if m.takeReaction(r, d); r.count > 0 {
			all[at] = r.String()
		} else {
			all = slices.Delete(all, at, at+1)
		}
	}
	m.set(key, message+":reactions", "["+strings.Join(all, ",")+"]")
	return before
}

// counted returns what a reaction counts in: burst ones, or the others.
func (r *reaction) counted(d string) (count *int, me *bool) {
	if member(d, "burst") == "true" || member(d, "type") == "1" {
		return &r.burst, &r.meBurst
	}
	return &r.normal, &r.me
}

func (m *Model) own(d string) bool { return m.me != "" && id(d, "user_id") == m.me }

// addReaction reports whether it has changed anything: the bot reacts once.
func (m *Model) addReaction(r *reaction, d string) bool {
	count, me := r.counted(d)
	if m.own(d) {
		if *me {
			return false
		}
		*me = true
	}
	r.count++
	*count++
	if colors := member(d, "burst_colors"); len(elements(colors)) > 0 {
		r.rest["burst_colors"] = json.RawMessage(colors)
	} else if r.rest["burst_colors"] == nil {
		r.rest["burst_colors"] = json.RawMessage("[]")
	}
	return true
}

func (m *Model) takeReaction(r *reaction, d string) {
	count, me := r.counted(d)
	if m.own(d) {
		*me = false
	}
	r.count--
	*count = max(*count-1, 0)
}

// vote keeps the votes for each answer of a poll beside its message.
func (m *Model) vote(add bool, key, message, value, d string) {
	kept, ok := m.get(key, message+":poll")
	if !ok {
		kept = member(member(value, "poll"), "results")
	}
	which, ok := number(d, "answer_id")
	if !ok {
		return
	}
	answers := elements(member(kept, "answer_counts"))
	at := slices.IndexFunc(answers, func(a string) bool { n, ok := number(a, "id"); return ok && n == which })
	if at < 0 {
		if !add {
			return
		}
		at = len(answers)
		answers = append(answers, encode(map[string]int{"id": which}))
	}
	count, _ := number(answers[at], "count")
	voted := member(answers[at], "me_voted") == "true"
	if add {
		count++
	} else {
		count = max(count-1, 0)
	}
	if m.own(d) {
		voted = add
	}
	answers[at] = overlay(answers[at], encode(map[string]any{"count": count, "me_voted": voted}))
	m.set(key, message+":poll", `{"answer_counts":[`+strings.Join(answers, ",")+`]}`)
}

func decode(text string, v any) {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		panic("cachemodel: " + err.Error())
	}
}
