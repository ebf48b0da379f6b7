// Package wire is where gateway and worker meet: the names of the Redis keys,
// the fields of an entry, the lane of a key. What is written here is the
// contract with readers in other languages and is pinned by golden files.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
)

// Shard names the keys of one shard. All of them carry the shard's hash tag, so
// that they share one Redis slot. The zero value is not usable.
type Shard struct {
	ID, Count int
	tag       string
}

// NewShard returns the names for shard id of count under a prefix.
func NewShard(prefix string, id, count int) Shard {
	return Shard{ID: id, Count: count, tag: "{" + prefix + ":" + strconv.Itoa(id) + "/" + strconv.Itoa(count) + "}"}
}

// Tag returns the part that all keys of the shard begin with.
func (s Shard) Tag() string { return s.tag }

// Stream returns the key of a lane's stream.
func (s Shard) Stream(lane int) string { return s.tag + ":stream:" + strconv.Itoa(lane) }

// Express returns the key of a lane's express stream.
func (s Shard) Express(lane int) string { return s.tag + ":express:" + strconv.Itoa(lane) }

// Session returns the key of the shard's session record (hash).
func (s Shard) Session() string { return s.tag + ":session" }

// Owner returns the key that names the gateway process holding the shard.
func (s Shard) Owner() string { return s.tag + ":owner" }

// Cache returns the key of a cached collection; name is laid out by package cache.
func (s Shard) Cache(name string) string { return s.tag + ":cache:" + name }

// Lease returns the key that names the worker holding a lane for a group.
func (s Shard) Lease(group string, lane int) string {
	return s.tag + ":lease:" + group + ":" + strconv.Itoa(lane)
}

// Progress returns the key of a lane's progress for a group (hash); express is
// the express stream's.
func (s Shard) Progress(group string, lane int, express bool) string {
	x := ""
	if express {
		x = "x"
	}
	return s.tag + ":progress:" + group + ":" + x + strconv.Itoa(lane)
}

// Dead returns the key of a group's dead letters (stream).
func (s Shard) Dead(group string) string { return s.tag + ":dead:" + group }

// Commands returns the key reserved for gateway commands (stream).
func (s Shard) Commands() string { return s.tag + ":commands" }

// TopologyKey returns the key of the deployment's topology (hash).
func TopologyKey(prefix string) string { return prefix + ":topology" }

// WorkersKey returns the key under which a group's live workers are listed.
func WorkersKey(prefix, group string) string { return prefix + ":workers:" + group }

// IdentifyKey returns the key that paces the identifies of one bucket.
func IdentifyKey(prefix string, bucket int) string {
	return prefix + ":identify:" + strconv.Itoa(bucket)
}

// GatewaysKey returns the key under which the gateway processes live that may hold
// the same set of shards (sorted set, score: unix ms until which one counts as
// living).
func GatewaysKey(prefix, set string) string { return prefix + ":gateways:" + set }

// Fields of the session record.
const (
	SessionFence     = "fence"
	SessionCommit    = "commit"
	SessionID        = "session_id"
	SessionResumeURL = "resume_url"
	SessionSequence  = "sequence"
	SessionIntents   = "intents"
	SessionSaved     = "saved" // unix ms
)

// Lane returns the lane of an ordering key: FNV-1a 64 of its text, mod lanes.
// No key is lane 0.
func Lane(key []byte, lanes int) int {
	if len(key) == 0 || lanes <= 1 {
		return 0
	}
	h := fnv.New64a()
	h.Write(key)
	return int(h.Sum64() % uint64(lanes))
}

// ShardOf returns the shard that a guild's dispatches come through, by Discord's
// rule (guild_id >> 22) % shards. ok is false for an id that is no number.
//
// Source: https://discord.com/developers/docs/events/gateway#sharding
func ShardOf(guildID string, shards int) (shard int, ok bool) {
	id, err := strconv.ParseUint(guildID, 10, 64)
	if err != nil || shards < 1 {
		return 0, false
	}
	return int((id >> 22) % uint64(shards)), true
}

// ShortSession returns the hash that stands for a Discord session in entries, so
// that the resumable id never leaves the gateway: 12 hexadecimal digits.
func ShortSession(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:6])
}
