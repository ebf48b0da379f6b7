package listenertest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/listenertest"
)

// edit is event.MessageUpdate.
type edit = listener.Event[*discordgo.MessageUpdate, *discordgo.Message]

func ExampleWorker_RunOne() {
	busy := true
	editLog := listener.MessageUpdate.Handle("edit-log", func(_ context.Context, e *edit) error {
		if busy {
			busy = false
			return errors.New("the database is busy")
		}
		fmt.Printf("%q became %q\n", e.Old.Content, e.New.Content)
		return nil
	})
	var w listenertest.Worker
	tea := listenertest.Event("MESSAGE_UPDATE", `{"id":"1","content":"tea"}`, `{"id":"1","content":"coffee"}`)
	result := w.RunOne(context.Background(), editLog, tea)
	fmt.Println(result)
	fmt.Println(result.Errors)
	// Output:
	// "coffee" became "tea"
	// edit-log succeeded after 2 attempts
	// [the database is busy]
}
