// Package event names the events of Discord's dispatches, so that a listener's
// signature reads as what it is called with:
//
//	func editLog(ctx context.Context, e *event.MessageUpdate) error
//
// instead of *listener.Event[*discordgo.MessageUpdate, *discordgo.Message].
package event
