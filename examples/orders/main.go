// Orders puts events of one's own into the streams: a shop's web server publishes
// them, and a typed listener of any worker takes them, with the same retries and
// in the same order as Discord's of the guild they belong to.
//
//	go run ./examples/orders
//	curl -d guild=1100000000000000001 -d item=soup http://127.0.0.1:8099/orders
package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/listener"
)

// An Order is the payload of an event.
type Order struct {
	GuildID string `json:"guild_id"` // workers keep the order of a guild by it
	Item    string `json:"item"`
}

// OrderCreated is the event: its name, its payload, and that it has no state
// before.
const OrderCreated listener.Kind[Order, listener.None] = "orders.created"

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		env.Add(OrderCreated.Handle("kitchen", cook))

		l, err := net.Listen("tcp", cmp.Or(os.Getenv("ORDERS_ADDR"), "127.0.0.1:8099"))
		if err != nil {
			return err
		}
		fmt.Printf("taking orders at http://%s/orders\n", l.Addr())
		shop := &http.Server{Handler: orders(env.Publisher)}
		go shop.Serve(l) // ends with Shutdown
		env.OnStop(shop.Shutdown)
		return nil
	})
}

// orders returns the shop. An order is accepted once it is in the streams; one
// that was not can be there all the same, if Redis's answer was lost.
func orders(p *forward.Publisher) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		o := Order{GuildID: r.FormValue("guild"), Item: r.FormValue("item")}
		id, err := p.Publish(r.Context(), string(OrderCreated), o.GuildID, o)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "accepted as %s\n", id)
	})
	return mux
}

func cook(_ context.Context, e *listener.Event[Order, listener.None]) error {
	fmt.Printf("cooking %s for guild %s\n", e.New.Item, e.GuildID)
	return nil
}
