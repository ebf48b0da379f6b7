package cachemodel

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A Size says how large a Source's world is. In a small one dispatches meet.
type Size struct {
	Guilds   int
	Channels int // a guild has; as many threads, and of roles, sounds, …
	Users    int // of whom any may be a member anywhere
	// Messages is how many a channel has in all, deleted ones come again. 0: ids are
	// of the time they are made at, and each is created once.
	Messages int
	// Odd is how many of a thousand dispatches are not as Discord sends them: ids
	// null, missing or numbers, lists null, payloads that are no objects.
	Odd int
}

// A Source makes up dispatches of all 79 types, at random but the same for the
// same seed. Ids of one kind are prefixes of each other where they can be. The
// first dispatch is a READY.
type Source struct {
	*rand.Rand
	size   Size
	n      int
	total  int                 // of all weights
	recent map[string][]string // ids by time, by channel
	hot    [][2]string         // places and ids of the messages made last
	Clock  func() time.Time    // for ids by time; nil: time.Now
}

// NewSource returns a source.
func NewSource(seed uint64, size Size) *Source {
	s := &Source{Rand: rand.New(rand.NewPCG(seed, 1)), size: size, recent: make(map[string][]string), Clock: time.Now}
	for _, m := range made {
		s.total += m.weight
	}
	return s
}

// Bot is the id of the bot in every Source.
const Bot = "9"

// Next returns the next dispatch.
func (s *Source) Next() (name string, payload []byte) {
	if s.n++; s.n == 1 {
		return "READY", []byte(s.ready())
	}
	at := s.IntN(s.total)
	for _, m := range made {
		if at -= m.weight; at < 0 {
			text := m.payload(s)
			if s.odd() {
				text = s.spoil(text)
			}
			return m.name, []byte(text)
		}
	}
	panic("cachemodel: no dispatch")
}

func (s *Source) odd() bool { return s.IntN(1000) < s.size.Odd }

// spoil makes a payload one that Discord would not send.
func (s *Source) spoil(text string) string {
	switch s.IntN(8) {
	case 0:
		return "null"
	case 1:
		return "[" + text + "]"
	case 2:
		return "{}"
	case 3:
		return text[:s.IntN(len(text))]
	case 4: // an id that is null
		return strings.Replace(text, `"id":"`, `"id":null,"was":"`, 1)
	case 5: // no id at all
		return strings.Replace(text, `"id":"`, `"was":"`, 1)
	case 6: // a user that is null
		return strings.Replace(text, `"user":{`, `"user":null,"was":{`, 1)
	}
	return strings.ReplaceAll(text, ":[", `:null,"was":[`)
}

// one reports true once in n times.
func (s *Source) one(n int) bool { return s.IntN(n) == 0 }

// unless returns text, or nothing once in n times.
func (s *Source) unless(n int, text string) string {
	if s.one(n) {
		return ""
	}
	return text
}

// pick returns one of a list.
func (s *Source) pick(list ...string) string { return list[s.IntN(len(list))] }

// some returns a random part of the numbers below n, in order.
func (s *Source) some(n int) (list []int) {
	most := 1 + s.IntN(4)
	for i := range n {
		if s.IntN(4) < most {
			list = append(list, i)
		}
	}
	return list
}

// list joins what f makes of each of some numbers into an array.
func (s *Source) list(n int, f func(i int) string) string {
	var all []string
	for _, i := range s.some(n) {
		all = append(all, f(i))
	}
	if len(all) > 0 && s.odd() {
		all = append(all, s.pick(all[0], "null", "{}", "[]", `"x"`))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// next returns a number that has not been before: what is old is told apart.
func (s *Source) next() string {
	s.n++
	return strconv.Itoa(s.n)
}

// The ids of the world.

func (s *Source) guild() string { return guildID(s.IntN(s.size.Guilds)) }

func guildID(i int) string {
	if first := []string{"1", "10", "100", "11"}; i < len(first) {
		return first[i]
	}
	return strconv.Itoa(1000 + i)
}

// place returns a guild and one of its channels or threads.
func (s *Source) place(base int) (guild, channel string) {
	g := s.IntN(s.size.Guilds)
	return guildID(g), s.in(base, g, s.IntN(s.size.Channels))
}

const (
	channels = 2_000_000
	threads  = 3_000_000
)

// in returns the id of the i-th channel of the g-th guild. The first is a prefix
// of the second.
func (s *Source) in(base, g, i int) string {
	if i == 1 {
		return strconv.Itoa(10 * (base + 100*g))
	}
	return strconv.Itoa(base + 100*g + i)
}

// user returns a user's id, now and then the bot's.
func (s *Source) user() string {
	if s.one(6) {
		return Bot
	}
	return userID(s.IntN(s.size.Users))
}

func userID(i int) string {
	if i == 0 {
		return "5"
	}
	return strconv.Itoa(50 + i)
}

// message returns the place and id of a message: "channel_id", perhaps a
// "guild_id", and the id. Fresh ids are for those that are created.
func (s *Source) message(fresh bool) (place, id string) {
	if !fresh && len(s.hot) > 0 && !s.one(3) { // most of what happens, happens to new ones
		at := s.hot[s.IntN(len(s.hot))]
		return at[0], at[1]
	}
	if fresh {
		defer func() {
			const kept = 5
			s.hot = append(s.hot[max(0, len(s.hot)-kept):], [2]string{place, id})
		}()
	}
	guild, channel := s.place(s.pickBase())
	place = `"channel_id":"` + channel + `","guild_id":"` + guild + `"`
	if s.one(12) { // outside guilds
		channel = s.direct()
		place = `"channel_id":"` + channel + `"`
	}
	if s.size.Messages > 0 {
		return place, messageID(s.IntN(s.size.Messages))
	}
	const epoch, kept = 1_420_070_400_000, 20
	known := s.recent[channel]
	if fresh || len(known) == 0 {
		id = strconv.FormatInt((s.Clock().UnixMilli()-epoch)<<22+int64(s.n)&0x3fffff, 10)
		if fresh {
			s.recent[channel] = append(known[max(0, len(known)-kept+1):], id)
		}
		return place, id
	}
	return place, known[s.IntN(len(known))]
}

// direct returns a channel outside guilds.
func (s *Source) direct() string { return s.pick("4000000", "40000000") }

func (s *Source) pickBase() int {
	if s.one(3) {
		return threads
	}
	return channels
}

// messageID returns the id of the i-th message of a channel: a few to a bucket.
func messageID(i int) string {
	const quarter = 15 * 60 * 1000
	return strconv.Itoa((i/4*quarter)<<22 + i + 1)
}

// polled reports whether a message has a poll, always the same.
func polled(id string) bool { return id[len(id)-1]%3 == 0 }

func quote(name, id string) string { return fmt.Sprintf("%q:%q", name, id) }
