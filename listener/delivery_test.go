package listener_test

import (
	"encoding/json"
	"testing"

	"github.com/sluicehq/sluice/listener"
)

func TestKey(t *testing.T) {
	t.Parallel()
	dispatch := listener.Delivery{ID: "0/3/1-0", Type: "MESSAGE_CREATE", Session: "a1", Shard: 0, Sequence: 7, Listener: "l", Attempt: 1}
	custom := listener.Delivery{ID: "0/3/1-0", Type: "orders.created", Listener: "l"}
	change := func(d listener.Delivery, f func(*listener.Delivery)) listener.Delivery { f(&d); return d }
	tests := []struct {
		name string
		a, b listener.Delivery
		same bool
	}{
		{"another attempt", dispatch, change(dispatch, func(d *listener.Delivery) { d.Attempt = 2 }), true},
		{"put into the stream again", dispatch, change(dispatch, func(d *listener.Delivery) { d.ID = "0/3/9-0" }), true},
		{"another listener", dispatch, change(dispatch, func(d *listener.Delivery) { d.Listener = "m" }), false},
		{"another sequence", dispatch, change(dispatch, func(d *listener.Delivery) { d.Sequence = 8 }), false},
		{"another session", dispatch, change(dispatch, func(d *listener.Delivery) { d.Session = "a2" }), false},
		{"another shard", dispatch, change(dispatch, func(d *listener.Delivery) { d.Shard = 1 }), false},
		{"a custom event again", custom, change(custom, func(d *listener.Delivery) { d.Attempt = 2 }), true},
		{"another custom event", custom, change(custom, func(d *listener.Delivery) { d.ID = "0/3/2-0" }), false},
		{"synthetic ones of one sequence", change(dispatch, func(d *listener.Delivery) { d.Synthetic = true }),
			change(dispatch, func(d *listener.Delivery) { d.Synthetic, d.ID = true, "0/3/9-0" }), false},
		{"gaps of one sequence", change(dispatch, func(d *listener.Delivery) { d.Type = "sluice.session.lost" }),
			change(dispatch, func(d *listener.Delivery) { d.Type, d.ID = "sluice.session.lost", "0/4/1-0" }), false},
	}
	for _, test := range tests {
		a, b := test.a.Key(), test.b.Key()
		if (a == b) != test.same {
			t.Errorf("%s: keys %q and %q, want the same: %v", test.name, a, b, test.same)
		}
		if len(a) != 22 {
			t.Errorf("%s: key %q has %d characters, want 22", test.name, a, len(a))
		}
	}
	if got, want := dispatch.Key(), "CxBEoO_JIamXUcyXvmIKgg"; got != want {
		t.Errorf("Key() = %q, want %q as in every version", got, want)
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	d := listener.Delivery{Payload: json.RawMessage(`{"a":null,"orderId":5,"a_b":{"c":[1, 2]},"twice":1,"Twice":2,"\u0065sc":"x"}`)}
	tests := []struct {
		name, want string
		ok         bool
	}{
		{"a", "null", true},
		{"orderId", "5", true},
		{"OrderID", "5", true},
		{"a_b", `{"c":[1, 2]}`, true},
		{"twice", "2", true},
		{"esc", `"x"`, true},
		{"c", "", false},
		{"", "", false},
	}
	for _, test := range tests {
		if got, ok := d.Field(test.name); string(got) != test.want || ok != test.ok {
			t.Errorf("Field(%q) = %s, %v, want %s, %v", test.name, got, ok, test.want, test.ok)
		}
	}
	for _, text := range []string{"", "null", "[1]", `{"a":`} {
		d := listener.Delivery{Payload: json.RawMessage(text)}
		if got, ok := d.Field("a"); ok {
			t.Errorf("Field of %q = %s", text, got)
		}
	}
	value, _ := d.Field("orderId")
	_ = append(value, "spoilt"...)
	if _, ok := d.Field("a_b"); !ok {
		t.Error("appending to a field's value changes the payload")
	}
}
