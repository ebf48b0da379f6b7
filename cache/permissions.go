package cache

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// AllPermissions is what a guild's owner and its administrators have: all bits
// that an int64 has for permissions, 0 to 62, whether Discord uses them yet or
// not.
const AllPermissions int64 = math.MaxInt64

// Permissions that apply to a guild as a whole and to no channel: no overwrite
// changes them, and none is lost by not seeing a channel. Those that discordgo
// has no name for yet are among Discord's other ones.
//
// Source: the table of bitwise permission flags, those without a channel type, at
// https://discord.com/developers/docs/topics/permissions
const guildPermissions int64 = discordgo.PermissionKickMembers | discordgo.PermissionBanMembers |
	discordgo.PermissionAdministrator | discordgo.PermissionManageGuild | discordgo.PermissionViewAuditLogs |
	discordgo.PermissionViewGuildInsights | discordgo.PermissionChangeNickname | discordgo.PermissionManageNicknames |
	discordgo.PermissionManageGuildExpressions | discordgo.PermissionModerateMembers |
	discordgo.PermissionViewCreatorMonetizationAnalytics | discordgo.PermissionCreateGuildExpressions

// sending are permissions that nobody has who may not send messages.
const sending int64 = discordgo.PermissionMentionEveryone | discordgo.PermissionSendTTSMessages |
	discordgo.PermissionAttachFiles | discordgo.PermissionEmbedLinks

// timedOut are the permissions that a timeout leaves a member.
const timedOut int64 = discordgo.PermissionViewChannel | discordgo.PermissionReadMessageHistory

// A standing is all that somebody's permissions follow from, as raw JSON; nil is
// what is not cached.
type standing struct {
	guildID, channelID, userID string

	guild    []byte
	member   []byte
	everyone []byte   // the role that all members have
	roles    [][]byte // the member's others
	channel  []byte   // what was asked about, a thread too; unused without a channelID
	parent   []byte   // of a thread: the channel it is in

	joined bool  // a membership of the thread is cached
	joins  int64 // memberships of the thread that are cached
}

// permissions computes what Discord lets them do.
//
// Source: https://discord.com/developers/docs/topics/permissions
func (s *standing) permissions(now time.Time) (int64, error) {
	if err := s.want(s.guild, "guild "+s.guildID); err != nil {
		return 0, err
	}
	if s.channelID != "" {
		if err := s.want(s.channel, "channel "+s.channelID); err != nil {
			return 0, err
		}
	}
	owner := rawjson.ID(rawjson.Get(s.guild, "owner_id"))
	if err := s.want(owner, "owner of guild "+s.guildID); err != nil {
		return 0, err
	}
	if string(owner) == s.userID {
		return AllPermissions, nil
	}
	p, err := s.base()
	if err != nil || p&discordgo.PermissionAdministrator != 0 {
		return AllPermissions, err
	}
	if s.channelID != "" {
		if p, err = s.overwritten(p); err != nil {
			return 0, err
		}
		p = s.implied(p)
	}
	if out, err := s.isTimedOut(now); err != nil {
		return 0, err
	} else if out {
		p &= timedOut
	}
	return s.admitted(p)
}

func (s *standing) want(value []byte, what string) error {
	if value == nil {
		return notCached(what)
	}
	return nil
}

// base unites what the member's roles allow in the guild. Roles that there are no
// more are not among them.
func (s *standing) base() (int64, error) {
	if err := s.want(s.member, "member "+s.userID); err != nil {
		return 0, err
	}
	if err := s.want(s.everyone, "role "+s.guildID+" (@everyone)"); err != nil {
		return 0, err
	}
	var all int64
	for _, role := range append([][]byte{s.everyone}, s.roles...) {
		p, err := bitsOf(role, "permissions")
		if err != nil {
			return 0, fmt.Errorf("cache: role %s: %w", rawjson.ID(rawjson.Get(role, "id")), err)
		}
		all |= p
	}
	return all, nil
}

// overwritten applies the channel's overwrites, of a thread those of the channel
// that it is in: those of @everyone, those of all the roles together, the
// member's, of each what it denies before what it allows.
func (s *standing) overwritten(p int64) (int64, error) {
	channel := s.channel
	if s.isThread() {
		parent := string(rawjson.ID(rawjson.Get(s.channel, "parent_id")))
		if err := s.want(s.parent, "channel "+parent+" of thread "+s.channelID); err != nil {
			return 0, err
		}
		channel = s.parent
	}
	var everyone, roles, member overwrite
	var a rawjson.Array
	for a.Reset(rawjson.Get(channel, "permission_overwrites")); a.Next(); {
		var into *overwrite
		id, kind := string(rawjson.ID(rawjson.Get(a.Value, "id"))), string(rawjson.ID(rawjson.Get(a.Value, "type")))
		switch {
		case kind == "1" && id == s.userID:
			into = &member
		case kind != "0":
			continue
		case id == s.guildID:
			into = &everyone
		case s.hasRole(id):
			into = &roles
		default:
			continue
		}
		deny, err := bitsOf(a.Value, "deny")
		if err == nil {
			into.deny |= deny
			deny, err = bitsOf(a.Value, "allow")
			into.allow |= deny
		}
		if err != nil {
			return 0, fmt.Errorf("cache: channel %s: overwrite of %s: %w", s.channelID, id, err)
		}
	}
	for _, o := range []overwrite{everyone, roles, member} {
		p = p&^(o.deny&^guildPermissions) | o.allow&^guildPermissions
	}
	return p, nil
}

type overwrite struct{ deny, allow int64 }

func (s *standing) hasRole(id string) bool {
	return slices.ContainsFunc(s.roles, func(role []byte) bool { return string(rawjson.ID(rawjson.Get(role, "id"))) == id })
}

// implied takes away what nobody can do who can't do what it rests on.
func (s *standing) implied(p int64) int64 {
	if p&discordgo.PermissionViewChannel == 0 {
		return p & guildPermissions
	}
	var send int64 = discordgo.PermissionSendMessages
	if s.isThread() {
		p &^= send
		send = discordgo.PermissionSendMessagesInThreads
	}
	if p&send == 0 {
		p &^= sending
	}
	switch s.channelType() {
	case discordgo.ChannelTypeGuildVoice, discordgo.ChannelTypeGuildStageVoice:
		if p&discordgo.PermissionVoiceConnect == 0 {
			p &= guildPermissions | discordgo.PermissionViewChannel
		}
	}
	return p
}

// admitted takes everything away in a private thread that they are not in and do
// not manage. Who is in it is known only of those whom dispatches told of: if
// that may not be all of them, not to find somebody says nothing.
func (s *standing) admitted(p int64) (int64, error) {
	if s.channelType() != discordgo.ChannelTypeGuildPrivateThread || s.joined ||
		p&discordgo.PermissionViewChannel == 0 || p&discordgo.PermissionManageThreads != 0 {
		return p, nil
	}
	count, ok := rawjson.Int(rawjson.Get(s.channel, "member_count"))
	if !ok || count >= maxThreadCount || s.joins < count {
		return 0, notCached("thread member " + s.userID + " of private thread " + s.channelID)
	}
	return p & guildPermissions, nil
}

// maxThreadCount is how far Discord counts the members of a thread.
//
// Source: https://discord.com/developers/docs/topics/threads#thread-fields
const maxThreadCount = 50

func (s *standing) isTimedOut(now time.Time) (bool, error) {
	text, ok := rawjson.Text(rawjson.Get(s.member, "communication_disabled_until"))
	if !ok {
		return false, nil
	}
	until, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return false, fmt.Errorf("cache: member %s: communication_disabled_until: %w", s.userID, err)
	}
	return now.Before(until), nil
}

func (s *standing) channelType() discordgo.ChannelType {
	n, ok := rawjson.Int(rawjson.Get(s.channel, "type"))
	if s.channelID == "" || !ok {
		return -1
	}
	return discordgo.ChannelType(n)
}

func (s *standing) isThread() bool {
	switch s.channelType() {
	case discordgo.ChannelTypeGuildNewsThread, discordgo.ChannelTypeGuildPublicThread, discordgo.ChannelTypeGuildPrivateThread:
		return true
	}
	return false
}

// bitsOf returns a set of permissions that an object has as a decimal. Discord
// does not bound it; bits above 62 are left out.
func bitsOf(object []byte, name string) (int64, error) {
	value := rawjson.Get(object, name)
	if len(value) == 0 || rawjson.IsNull(value) {
		return 0, nil
	}
	text := string(rawjson.ID(value))
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		if wide, ok := new(big.Int).SetString(text, 10); ok {
			return wide.And(wide, big.NewInt(math.MaxInt64)).Int64(), nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s is %s, want a number", name, value)
	}
	return int64(n & math.MaxInt64), nil
}
