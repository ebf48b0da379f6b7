package cachemodel

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Read returns what the cache of one shard holds in Redis. tag is what the shard's
// keys begin with, {sluice:0/1}.
func Read(ctx context.Context, rdb redis.Cmdable, tag string) (Content, error) {
	prefix := tag + ":cache:"
	keys, err := rdb.Keys(ctx, strings.NewReplacer("[", `\[`, "*", `\*`, "?", `\?`).Replace(prefix)+"*").Result()
	if err != nil {
		return nil, err
	}
	pipe := rdb.Pipeline()
	hashes := make(map[string]*redis.MapStringStringCmd)
	away := pipe.SMembers(ctx, prefix+"unavailable")
	for _, key := range keys {
		name := strings.TrimPrefix(key, prefix)
		if name != "unavailable" && !strings.HasPrefix(name, "buckets:") {
			hashes[name] = pipe.HGetAll(ctx, key)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	content := make(Content)
	for name, cmd := range hashes {
		if len(cmd.Val()) > 0 {
			content[name] = cmd.Val()
		}
	}
	for _, id := range away.Val() {
		if content["unavailable"] == nil {
			content["unavailable"] = make(map[string]string)
		}
		content["unavailable"][id] = ""
	}
	return content, nil
}
