// Editlog prints what a message was before it was edited, and what it is now: the
// state before comes with the event, however long ago this program was started.
//
//	go run ./examples/editlog
package main

import (
	"context"
	"fmt"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/event"
)

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		env.Add(listener.MessageUpdate.Handle("edit-log", func(_ context.Context, e *event.MessageUpdate) error {
			if _, sent := e.Field("content"); sent && e.Old != nil && e.Old.Content != e.New.Content {
				fmt.Printf("%q became %q\n", e.Old.Content, e.New.Content)
			}
			return nil
		}))
		return nil
	})
}
