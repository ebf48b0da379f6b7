package gateway_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

// A printer is a handler that prints.
type printer struct{ stop context.CancelFunc }

func (p printer) Check(context.Context) error          { return nil }
func (p printer) SessionEnded(context.Context, string) {}
func (p printer) Sequence(received int64) int64        { return received }

func (p printer) Dispatch(_ context.Context, d gateway.Dispatch) error {
	if d.Type != "READY" {
		fmt.Printf("%d %s %s\n", d.Sequence, d.Type, d.Data)
		p.stop()
	}
	return nil
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	discord := gatewaytest.New(gatewaytest.Config{})
	if err := discord.Start(); err != nil {
		fmt.Println(err)
	}
	defer discord.Close()

	info, err := gateway.Bot(ctx, client, discord.URL(), "token")
	if err != nil {
		fmt.Println(err)
	}
	shard, err := gateway.New(gateway.Config{
		Token: "token", URL: info.URL, Logger: slog.New(slog.DiscardHandler),
	}, printer{stop: cancel})
	if err != nil {
		fmt.Println(err)
	}
	go func() {
		discord.WaitConnected(ctx, 0)
		discord.Send(0, "MESSAGE_CREATE", []byte(`{"id":"1","content":"hello"}`))
	}()
	fmt.Println(shard.Run(ctx, gateway.Session{}))
	// Output:
	// 2 MESSAGE_CREATE {"id":"1","content":"hello"}
	// <nil>
}
