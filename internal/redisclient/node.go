package redisclient

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// NodeOf returns the options of the server that has key: the client's own, or
// those of the master in its cluster. Whoever asks makes a connection anew, often
// after an error, which may be that the node was killed or demoted: so the
// cluster's slots are read again, without waiting for it, and the next call knows.
// The error says that the node is not known, or that the client is of a kind that
// has no such options.
func NodeOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Options, error) {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options(), nil
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("find the node of %q: %w", key, err)
		}
		c.ReloadState(ctx)
		return node.Options(), nil
	default:
		return nil, fmt.Errorf("connections can't be made from a %T: want a *redis.Client or a *redis.ClusterClient", client)
	}
}
