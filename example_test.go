package sluice_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

// An edit log that is a worker's main. Its listener fails while the database
// does, and is run again.
func ExampleWorker() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		db, err := sql.Open("postgres", "postgres://db/bot")
		if err != nil {
			return err
		}
		env.OnStop(func(context.Context) error { return db.Close() })
		env.Add(listener.MessageUpdate.Handle("edit-log", func(ctx context.Context, e *event.MessageUpdate) error {
			if e.Old == nil { // not cached before this dispatch
				return nil
			}
			_, err := db.ExecContext(ctx, "INSERT INTO edits VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", e.Key(), e.Old.Content, e.New.Content)
			return err
		}))
		return nil
	})
}

// A group of its own for what is slow or may fall behind: it holds up no listener
// of the configured group.
func ExampleEnv_Group() {
	var store func(ctx context.Context, ds []*listener.Delivery) error
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		options := listener.BatchOptions{MaxSize: 1000, MaxWait: 5 * time.Second}
		env.Group("archive").Add(listener.HandleBatch("store", "message.*", options, store))
		return nil
	})
}
