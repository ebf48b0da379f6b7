package wire

import (
	"strconv"
	"strings"
)

// Fields of the hash Shard.Groups. Each is one of these and a group's name.
const (
	GroupServed  = "served:"  // unix ms at which the shard's owner last saw a live worker of the group, to the minute
	GroupUnread  = "unread:"  // entries that were trimmed before the group had read them
	GroupUnacked = "unacked:" // entries that were trimmed after it had read, before it had acknowledged them
	GroupTrimmed = "trimmed:" // unix ms at which the last of those was
)

// Groups returns the key of what the shard's owner notes of the groups (hash).
func (s Shard) Groups() string { return s.tag + ":groups" }

// LivesUntil returns the unix ms, of Redis' clock, up to which a worker counts as
// living that is listed with about. It is 0 if about is not what workers write.
func LivesUntil(about string) int64 {
	rest, _ := strings.CutPrefix(about, `{"until":`)
	end := strings.IndexAny(rest, ",}")
	if end < 0 {
		return 0
	}
	ms, _ := strconv.ParseInt(rest[:end], 10, 64)
	return ms
}
