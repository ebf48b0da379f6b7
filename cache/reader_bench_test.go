package cache_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
)

// BenchmarkReader reads by the Reader and, in turn with it, by the same commands
// of go-redis without decoding what they bring. of-raw is what the Reader reaches
// of their speed.
func BenchmarkReader(b *testing.B) {
	l, r := newLayout(b, 1)
	ids := l.bigGuild(1000, 250)
	rdb, ctx := l.rdb, b.Context()
	key := func(name string) string { return l.key("9", name) }
	pipe := func(commands func(p redis.Pipeliner)) func() error {
		return func() error {
			p := rdb.Pipeline()
			commands(p)
			_, err := p.Exec(ctx)
			return err
		}
	}
	message := snowflake(time.Now(), 1)
	l.put("9", "message:10:"+bucketName(message), message, `{"id":"`+message+`","channel_id":"10","content":"`+strings.Repeat("x", 300)+`","author":{"id":"1000","username":"u"}}`)
	hand := pipe(func(p redis.Pipeliner) {
		p.HMGet(ctx, key("guild"), "9", "9:member_count")
		p.SMIsMember(ctx, key("unavailable"), "9")
		p.HMGet(ctx, key("channel:9"), "10", "10:voice")
		p.HMGet(ctx, key("member:9"), "1000")
		p.HKeys(ctx, key("role:9"))
		p.HMGet(ctx, key("role:9"), "100", "101", "102", "103", "104")
	})
	for _, c := range []struct {
		name   string
		reader func() error
		raw    func() error
	}{
		{"Guild", func() error { _, err := r.Guild(ctx, "9"); return err }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("guild"), "9", "9:member_count")
			p.SMIsMember(ctx, key("unavailable"), "9")
		})},
		{"Channel", func() error { _, err := r.Channel(ctx, "9", "10"); return err }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("channel:9"), "10", "10:voice")
			p.HMGet(ctx, key("thread:9"), "10", "10:voice", "10:member_count")
		})},
		{"Presence", func() error { _, err := r.Presence(ctx, "9", "1000"); return err },
			func() error { return rdb.HGet(ctx, key("presence:9"), "1000").Err() }},
		{"Member", func() error { _, err := r.Member(ctx, "9", "1000"); return err }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("member:9"), "1000")
			p.HKeys(ctx, key("role:9"))
		})},
		{"RawMember", func() error { _, err := r.Raw(ctx, "member", "9", "1000"); return err }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("member:9"), "1000")
			p.HKeys(ctx, key("role:9"))
		})},
		{"Message", func() error { _, err := r.Message(ctx, "9", "10", message); return err },
			func() error {
				return rdb.HMGet(ctx, key("message:10:"+bucketName(message)), message, message+":reactions", message+":poll").Err()
			}},
		{"Members/1000ByID", func() error { return drain(r, ctx, ids) }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("member:9"), ids[:500]...)
			p.HMGet(ctx, key("member:9"), ids[500:]...)
			p.HKeys(ctx, key("role:9"))
		})},
		{"Members/1000All", func() error { return drain(r, ctx, nil) },
			func() error { return rdb.HGetAll(ctx, key("member:9")).Err() }},
		{"Members/1000AllRaw", func() error {
			for _, err := range r.RawAll(ctx, "member", "9") {
				if err != nil {
					return err
				}
			}
			return nil
		}, func() error { return rdb.HGetAll(ctx, key("member:9")).Err() }},
		{"Batch", func() error { return handler(r, ctx) }, hand},
		{"Permissions/250Roles", func() error { _, err := r.Permissions(ctx, "9", "10", "1000"); return err }, pipe(func(p redis.Pipeliner) {
			p.HMGet(ctx, key("guild"), "9")
			p.HMGet(ctx, key("member:9"), "1000")
			p.HGetAll(ctx, key("role:9"))
			p.HMGet(ctx, key("channel:9"), "10")
			p.HMGet(ctx, key("thread:9"), "10")
		})},
	} {
		b.Run(c.name, func(b *testing.B) {
			var reader, raw time.Duration
			b.ReportAllocs()
			for b.Loop() {
				at := time.Now()
				err := c.reader()
				between := time.Now()
				if err == nil {
					err = c.raw()
				}
				if err != nil {
					b.Fatal(err)
				}
				reader, raw = reader+between.Sub(at), raw+time.Since(between)
			}
			b.ReportMetric(float64(reader.Microseconds())/float64(b.N), "reader-µs")
			b.ReportMetric(float64(raw.Microseconds())/float64(b.N), "raw-µs")
			b.ReportMetric(float64(raw)/float64(reader), "of-raw")
		})
	}
}

// handler reads what a message handler wants.
func handler(r *cache.Reader, ctx context.Context) error {
	b := r.Batch()
	guild, channel, member, roles := b.Guild("9"), b.Channel("9", "10"), b.Member("9", "1000"), b.MemberRoles("9", "1000")
	if err := b.Read(ctx); err != nil {
		return err
	}
	for _, err := range []error{second(guild.Get()), second(channel.Get()), second(member.Get()), second(roles.Get())} {
		if err != nil {
			return err
		}
	}
	return nil
}

func second[T any](_ T, err error) error { return err }

func drain(r *cache.Reader, ctx context.Context, ids []string) error {
	n := 0
	for _, err := range r.Members(ctx, "9", ids...) {
		if err != nil {
			return err
		}
		n++
	}
	if n != 1000 {
		return fmt.Errorf("%d members", n)
	}
	return nil
}

// bigGuild writes a guild with members and roles of the usual size.
func (l *layout) bigGuild(members, roles int) (ids []string) {
	l.put("9", "guild", "9", `{"id":"9","name":"g","owner_id":"1","member_count":1000,"features":["A","B","C"],"description":"`+strings.Repeat("x", 1000)+`"}`)
	for i := range roles {
		id := fmt.Sprint(100 + i)
		l.put("9", "role:9", id, `{"id":"`+id+`","name":"role `+id+`","permissions":"137411140509185","color":3447003,"colors":{"primary_color":3447003,"secondary_color":null,"tertiary_color":null},"hoist":true,"icon":null,"unicode_emoji":null,"position":`+fmt.Sprint(i)+`,"managed":false,"mentionable":false,"flags":0,"tags":{}}`)
	}
	l.put("9", "role:9", "9", `{"id":"9","name":"@everyone","permissions":"104189505"}`)
	l.put("9", "channel:9", "10", `{"id":"10","type":0,"name":"general","topic":"`+strings.Repeat("x", 200)+`","permission_overwrites":[`+ofRole("9", 1024, 0)+`,`+ofRole("100", 0, 1024)+`]}`)
	for i := range members {
		id := fmt.Sprint(1000 + i)
		ids = append(ids, id)
		l.put("9", "member:9", id, `{"user":{"id":"`+id+`","username":"user`+id+`","global_name":"User","avatar":"a1b2c3d4e5f6","discriminator":"0","public_flags":0,"bot":false},"nick":null,"avatar":null,"roles":["100","101","102","103","104"],"joined_at":"2024-01-01T00:00:00.000000+00:00","premium_since":null,"deaf":false,"mute":false,"pending":false,"flags":0,"communication_disabled_until":null}`)
		l.put("9", "presence:9", id, `{"user":{"id":"`+id+`"},"status":"idle","activities":[],"client_status":{"desktop":"idle"}}`)
	}
	return ids
}
