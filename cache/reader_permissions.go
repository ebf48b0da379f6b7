package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// standingScript reads what somebody's permissions follow from, all of one
// moment. Which roles there are to read, and which channel a thread is in, is
// known only once the member and the thread are read: commands of a pipe would
// have to read all roles, and take a second round trip for a thread.
//
//	KEYS  guilds, members, roles, channels, threads, members of the thread
//	ARGV  guild id, user id, channel id or empty
//	→ guild, member, role of everyone, the member's other roles (an array),
//	  channel or thread, the channel that a thread is in, what lies beside a
//	  thread for its member_count (each empty if there is none), 1 if the user is
//	  a member of the thread, number of its members
const standingScript = `
local guild, user, channel = ARGV[1], ARGV[2], ARGV[3]
local function read(key, field) return redis.call('HGET', key, field) or '' end
local member, roles = read(KEYS[2], user), {}
if member ~= '' then
  local ids = cjson.decode(member).roles
  if type(ids) == 'table' and #ids > 0 then roles = redis.call('HMGET', KEYS[3], unpack(ids)) end
end
local place, parent, count, joined, joins = '', '', '', 0, 0
if channel ~= '' then
  place = read(KEYS[4], channel)
  if place == '' then
    place = read(KEYS[5], channel)
    if place ~= '' then
      local id = cjson.decode(place).parent_id
      if type(id) == 'string' then parent = read(KEYS[4], id) end
      count = read(KEYS[5], channel .. ':member_count')
      joined, joins = redis.call('HEXISTS', KEYS[6], user), redis.call('HLEN', KEYS[6])
    end
  end
end
return {read(KEYS[1], guild), member, read(KEYS[3], guild), roles, place, parent, count, joined, joins}`

// Permissions returns what a member may do in a channel or a thread of a guild by
// Discord's rules, in one round trip; with an empty channelID, what they may do
// in the guild. To be tested with discordgo's constants:
//
//	if p&discordgo.PermissionManageMessages != 0 { … }
//
// The owner and administrators have AllPermissions. What the channel's overwrites
// leave is without what nobody can do who does not see the channel, may not send
// messages, or may not connect to a voice channel; a member who is timed out may
// see and read. In a thread it is what the channel that it is in allows, but
// SEND_MESSAGES: there SEND_MESSAGES_IN_THREADS says whether they may write. In a
// private thread it is nothing, unless they are in it or manage threads.
//
// The error wraps ErrNotCached, and names what is missing, if the answer is not
// certain: that is also so of somebody who is not known to be in a private thread
// whose members are not all known. Permissions above bit 62 are left out; Discord
// has 53 of them so far.
//
// Source: https://discord.com/developers/docs/topics/permissions
func (r *Reader) Permissions(ctx context.Context, guildID, channelID, userID string) (int64, error) {
	b := r.Batch()
	return read(ctx, b, b.Permissions(guildID, channelID, userID))
}

// Permissions asks for what Reader.Permissions returns.
func (b *Batch) Permissions(guildID, channelID, userID string) *Item[int64] {
	q := b.r.standing(guildID, channelID, userID, func(s *standing) (entity, error) {
		p, err := s.permissions(time.Now())
		if err != nil {
			return entity{}, err
		}
		return entity{raw: strconv.AppendQuote(nil, strconv.FormatInt(p, 10))}, nil
	})
	return item(b, q, func(e entity) (int64, error) { return strconv.ParseInt(string(e.raw[1:len(e.raw)-1]), 10, 64) })
}

// MemberRoles asks for what Reader.MemberRoles returns.
func (b *Batch) MemberRoles(guildID, userID string) *Item[[]*discordgo.Role] {
	q := b.r.standing(guildID, "", userID, func(s *standing) (entity, error) {
		var found []entity
		for _, role := range s.roles {
			found = append(found, entity{raw: role})
		}
		return arrayOf(found), cmp.Or(s.want(s.member, "member "+userID), s.want(s.everyone, "roles of guild "+guildID))
	})
	list := roles.list(guildID)
	return item(b, q, func(e entity) ([]*discordgo.Role, error) {
		all, err := list(e)
		slices.SortFunc(all, func(a, b *discordgo.Role) int {
			return cmp.Or(cmp.Compare(b.Position, a.Position), byID(a.ID, b.ID))
		})
		return all, err
	})
}

// standing asks for all that somebody's permissions follow from.
func (r *Reader) standing(guildID, channelID, userID string, judge func(*standing) (entity, error)) query {
	shard, err := r.shard(guildID)
	if err != nil || guildID == "" {
		return fail(cmp.Or(err, fmt.Errorf("cache: permissions of user %s: want the id of a guild", userID)))
	}
	keys := []string{
		shard.Cache(string(dispatch.Guild)),
		shard.Cache(childrenName(dispatch.Member, guildID)),
		shard.Cache(childrenName(dispatch.Role, guildID)),
		shard.Cache(childrenName(dispatch.Channel, guildID)),
		shard.Cache(childrenName(dispatch.Thread, guildID)),
		shard.Cache(childrenName(dispatch.ThreadMember, channelID)),
	}
	return func(ctx context.Context, pipe redis.Pipeliner) func() (entity, error) {
		reply := pipe.Eval(ctx, standingScript, keys, guildID, userID, channelID)
		return func() (entity, error) {
			values, err := reply.Slice()
			if err != nil || len(values) != 9 {
				return entity{}, fmt.Errorf("cache: read permissions of user %s in guild %s: %w", userID, guildID, err)
			}
			text := func(i int) []byte {
				if t, _ := values[i].(string); t != "" {
					return []byte(t)
				}
				return nil
			}
			s := &standing{
				guildID: guildID, channelID: channelID, userID: userID,
				guild: text(0), member: text(1), everyone: text(2), channel: text(4), parent: text(5),
				joined: values[7] == int64(1),
			}
			others, _ := values[3].([]any)
			for _, role := range others {
				if t, is := role.(string); is {
					s.roles = append(s.roles, []byte(t))
				}
			}
			if count := text(6); count != nil {
				s.channel = overMember("member_count")(s.channel, count)
			}
			s.joins, _ = values[8].(int64)
			return judge(s)
		}
	}
}
