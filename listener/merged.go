package listener

import (
	"errors"
	"fmt"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// Errors of Event.Merged.
var (
	// ErrRemoved: Old is what the dispatch removed (the entity, or those of a list
	// that went); there is none any more.
	ErrRemoved = errors.New("listener: the dispatch removed the entity")
	// ErrNotKnown: what the dispatch leaves out is not known, because the entity
	// was not cached before it.
	ErrNotKnown = errors.New("listener: the entity is not known as a whole: it was not cached before, and the payload is only a part of it")
	// ErrNoEntity: events of this kind have no previous state, so there is nothing
	// to merge. What a creation created is New.
	ErrNoEntity = errors.New("listener: events of this kind have no entity that a previous state is of")
)

// Merged returns the entity as it is after the dispatch, from the event itself: it
// asks nobody, and later dispatches make no difference. What the dispatch sent is
// laid over the state before, member by member and null too, as the gateway does
// for its cache; a list of emojis or stickers is the one sent, and a new member is
// what GUILD_MEMBER_ADD sent. If the state before is not known, a payload that has
// the whole entity is enough.
//
// As in New, a message with a component that discordgo does not know is without
// its components. As in Old, a guild is without what it nests (channels, members, roles, …), and a
// GUILD_DELETE for an outage leaves the guild as it was. Where Partial or Slim is
// set, what was missing then is missing here.
//
// The error is ErrRemoved, ErrNotKnown or ErrNoEntity, with the zero P, or a
// *DecodeError. The value is decoded by each call and the caller's own.
func (e *Event[T, P]) Merged() (P, error) {
	var entity P
	if _, none := any(entity).(None); none {
		return entity, ErrNoEntity
	}
	raw, err := merge(&e.Delivery)
	if err != nil {
		return entity, err
	}
	if _, err := into(e.Type, raw, &entity); err != nil {
		var zero P
		return zero, undecodable(e.Type, raw, &entity, err)
	}
	fillPrevious(any(entity), e.GuildID)
	return entity, nil
}

// merge returns the raw entity after an event. The rules are package cache's.
func merge(d *Delivery) ([]byte, error) {
	t := dispatch.Lookup(d.Type)
	if t == nil {
		return nil, ErrNoEntity
	}
	var f dispatch.Fields
	if err := f.Scan(d.Payload); err != nil || !f.Object {
		return nil, &DecodeError{Type: d.Type, Err: fmt.Errorf("the payload is %s, want an object", glimpse(d.Payload))}
	}
	object := []byte(d.Payload)
	if t.Cache.Object != dispatch.NoField {
		object = f.Raw(t.Cache.Object)
	}
	switch t.Cache.Do {
	case dispatch.MergeVoice:
		if rawjson.IsNull(f.Raw(dispatch.ChannelID)) {
			return nil, ErrRemoved
		}
	case dispatch.Replace:
		return object, nil
	case dispatch.Merge, dispatch.MergeKnown:
	case dispatch.Lay:
		return laid(d, object)
	case dispatch.GuildUpdate:
		object = rawjson.AppendWithout(nil, object, func(key, _ []byte) bool { return dispatch.IsNested(key) })
	case dispatch.GuildDelete:
		if !rawjson.IsTrue(f.Raw(dispatch.Unavailable)) {
			return nil, ErrRemoved
		}
		object = nil // an outage changes nothing
	case dispatch.Remove, dispatch.RemoveMany, dispatch.SyncThreads, dispatch.ThreadMembers, dispatch.Clear, dispatch.ClearOne:
		return nil, ErrRemoved
	case dispatch.PutList:
		if len(object) == 0 || object[0] != '[' {
			return nil, ErrNotKnown // left out of a slim entry
		}
		return object, nil
	default:
		return nil, ErrNoEntity
	}
	switch known := rawjson.IsObject(d.Previous) && rawjson.Complete(d.Previous); {
	case known && object == nil:
		return d.Previous, nil
	case known:
		return rawjson.AppendMerged(make([]byte, 0, len(d.Previous)+len(object)), d.Previous, object), nil
	case isWhole(t, object):
		return object, nil
	}
	return nil, ErrNotKnown
}

// laid returns the entity of which a dispatch says only what is beside it: alone it
// is never known as a whole.
func laid(d *Delivery, object []byte) ([]byte, error) {
	if !rawjson.IsObject(d.Previous) || !rawjson.Complete(d.Previous) {
		return nil, ErrNotKnown
	}
	return rawjson.AppendMerged(make([]byte, 0, len(d.Previous)+len(object)), d.Previous, object), nil
}

// whole has, for each kind of entity, members without which a payload is only a
// part of it. A kind that is not in it is never sent as a whole: a GUILD_UPDATE
// lacks what only GUILD_CREATE has, member_count for one.
//
// Sources: the objects' pages at https://discord.com/developers/docs/resources and
// https://discord.com/developers/docs/events/gateway-events
var whole = map[dispatch.Kind][]string{
	dispatch.AutoModRule:     {"id", "name", "trigger_type", "actions", "enabled"},
	dispatch.Channel:         {"id", "type", "name", "position", "permission_overwrites"},
	dispatch.Entitlement:     {"id", "sku_id", "application_id", "type"},
	dispatch.Integration:     {"id", "name", "type", "enabled", "account"},
	dispatch.Member:          {"user", "roles", "joined_at", "deaf", "mute"}, // joined_at, deaf and mute may be missing
	dispatch.Message:         {"id", "author", "content", "timestamp", "embeds", "attachments"},
	dispatch.Presence:        {"user", "status", "activities", "client_status"},
	dispatch.Role:            {"id", "name", "permissions", "position"},
	dispatch.ScheduledEvent:  {"id", "name", "scheduled_start_time", "status"},
	dispatch.SoundboardSound: {"sound_id", "name", "volume"},
	dispatch.StageInstance:   {"id", "channel_id", "topic", "privacy_level"},
	dispatch.Subscription:    {"id", "user_id", "sku_ids", "status"},
	dispatch.Thread:          {"id", "type", "name", "parent_id", "thread_metadata"},
	dispatch.ThreadMember:    {"id", "user_id", "join_timestamp", "flags"},
	dispatch.User:            {"id", "username"},
	dispatch.VoiceState:      {"user_id", "channel_id", "session_id"},
}

func isWhole(t *dispatch.Type, object []byte) bool {
	names, ok := whole[t.Cache.Kind]
	if !ok {
		return false
	}
	for _, name := range names {
		// A member's joined_at is null where Discord does not say it.
		if v := rawjson.Get(object, name); v == nil || (rawjson.IsNull(v) && name == "joined_at") {
			return false
		}
	}
	return true
}
