package gatewaytest

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// someApplication is the bot's id where the token does not tell.
const someApplication = "1100000000000000001"

// Withhold is a Config.Ready that withholds READY: clients may come before the
// recording that Play plays has begun, and wait for its READY.
func Withhold(shard, shards int) json.RawMessage { return nil }

// SetReady changes what Config.Ready said, for sessions that begin from now on,
// and for those whose READY was withheld.
func (s *Server) SetReady(ready func(shard, shards int) json.RawMessage) {
	s.mu.Lock()
	s.ready = ready
	var waiting []*session
	for _, sess := range s.current {
		if sess.awaits {
			waiting = append(waiting, sess)
		}
	}
	s.mu.Unlock()
	for _, sess := range waiting {
		s.emit(func() (*session, string, []byte) { return s.readyOf(sess) })
	}
}

// readyOf is a session's READY, for emit: nothing if it is withheld, or was sent.
// s.mu is held.
func (s *Server) readyOf(sess *session) (*session, string, []byte) {
	if !sess.awaits || sess.ended {
		return nil, "", nil
	}
	body := s.readyBody(sess)
	if body == nil {
		return nil, "", nil
	}
	sess.awaits = false
	return sess, "READY", body
}

// readyBody makes the d of a session's READY, nil to withhold it. s.mu is held.
func (s *Server) readyBody(sess *session) []byte {
	var d json.RawMessage
	if s.ready != nil {
		if d = s.ready(sess.place.shard, sess.place.shards); d == nil {
			return nil
		}
	} else {
		id, err := gateway.ApplicationID(sess.token)
		if err != nil {
			id = someApplication
		}
		d = fmt.Appendf(nil, `{"v":10,"user":{"id":"%s","username":"bot","discriminator":"0000","global_name":null,"avatar":null,"bot":true,"flags":0},`+
			`"guilds":[],"application":{"id":"%s","flags":0}}`, id, id)
	}
	address := s.cfg.ResumeURL
	if address == "" {
		address = "ws://" + sess.host + resumePath
	}
	return replace(d, []member{
		{"session_id", appendString(nil, sess.id)},
		{"resume_gateway_url", appendString(nil, address)},
		{"shard", fmt.Appendf(nil, "[%d,%d]", sess.place.shard, sess.place.shards)},
	})
}

// guildsOf returns READY's d with only the guilds of one shard.
func guildsOf(d []byte, p place) []byte {
	guilds := rawjson.Get(d, "guilds")
	if guilds == nil {
		return d
	}
	kept := []byte{'['}
	var a rawjson.Array
	a.Reset(guilds)
	for a.Next() {
		if shardOf(rawjson.ID(rawjson.Get(a.Value, "id")), p.shards) != p.shard {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, a.Value...)
	}
	return replace(d, []member{{"guilds", append(kept, ']')}})
}

// shardOf returns the shard a guild belongs to; without a guild that is 0.
// Source: https://discord.com/developers/docs/events/gateway#sharding
func shardOf(guild []byte, shards int) int {
	id, err := strconv.ParseUint(string(guild), 10, 64)
	if err != nil {
		return 0
	}
	return int((id >> 22) % uint64(shards))
}

type member struct {
	name  string // lower case, plain
	value []byte
}

// replace returns the object with members set: those it has where they are, the
// others at its end. What is no object is replaced by one.
func replace(obj []byte, members []member) []byte {
	out := append(make([]byte, 0, len(obj)+256), '{')
	put := func(key, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, '"'), key...)
		out = append(append(out, '"', ':'), value...)
	}
	set := make([]bool, len(members))
	var o rawjson.Object
	o.Reset(obj)
walk:
	for o.Next() {
		for i, m := range members {
			if !rawjson.KeyIs(o.Key, m.name) {
				continue
			}
			if !set[i] {
				put([]byte(m.name), m.value)
			}
			set[i] = true
			continue walk
		}
		put(o.Key, o.Value)
	}
	for i, m := range members {
		if !set[i] {
			put([]byte(m.name), m.value)
		}
	}
	return append(out, '}')
}
