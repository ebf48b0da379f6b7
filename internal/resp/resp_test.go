package resp_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/resp"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	got := resp.AppendWords(nil, "SET", "a\r\nb", "")
	got = resp.AppendInt(resp.AppendBulk(resp.AppendCommand(got, 2), []byte("N")), -12)
	want := "*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n*2\r\n$1\r\nN\r\n$3\r\n-12\r\n"
	if string(got) != want {
		t.Errorf("commands = %q, want %q", got, want)
	}
	words, err := resp.Words(got)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	if diff := cmp.Diff([]string{"SET", "a\r\nb", ""}, texts); diff != "" {
		t.Errorf("Words (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "*", "*1\r\n", "*1\r\n$5\r\nabc\r\n", "*x\r\n", "$1\r\na\r\n", "*-1\r\n"} {
		if words, err := resp.Words([]byte(bad)); !errors.Is(err, resp.ErrProtocol) {
			t.Errorf("Words(%q) = %q, %v, want %v", bad, words, err, resp.ErrProtocol)
		}
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	r := resp.NewReader(strings.NewReader("+OK\r\n:12\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*3\r\n:1\r\n-ERR in\r\n*1\r\n$1\r\nz\r\n-ERR "+long+"\r\n*2\r\n$1\r\nf\r\n$-1\r\n+end\r\n"), 64)
	for _, want := range []string{"OK", "12", "a\r\n"} {
		if got, ok, err := r.Text(); got != want || !ok || err != nil {
			t.Fatalf("Text = %q, %v, %v, want %q", got, ok, err, want)
		}
	}
	if _, ok, err := r.Text(); ok || err != nil {
		t.Fatalf("Text of nil = %v, %v", ok, err)
	}
	if n, err := r.Array(); n != -1 || err != nil {
		t.Fatalf("Array of nil = %d, %v", n, err)
	}
	if err := r.Skip(); err != nil {
		t.Fatalf("Skip of an array with an error in it = %v", err)
	}
	if err := r.Skip(); err != resp.Error("ERR "+long) {
		t.Fatalf("Skip of an error = %.20v", err)
	}
	if n, err := r.Array(); n != 2 || err != nil {
		t.Fatalf("Array = %d, %v", n, err)
	}
	if err := errors.Join(r.Skip(), r.Skip(), r.Skip()); err != nil {
		t.Fatal(err)
	}
	if err := r.Skip(); err != io.EOF {
		t.Fatalf("Skip at the end = %v", err)
	}
	for _, bad := range []string{"?\r\n", "+OK\n", "$x\r\n", "$\r\n", "*9999999999999999999\r\n"} {
		if err := resp.NewReader(strings.NewReader(bad), 64).Skip(); !errors.Is(err, resp.ErrProtocol) {
			t.Errorf("Skip of %q = %v, want %v", bad, err, resp.ErrProtocol)
		}
	}
	if _, err := resp.NewReader(strings.NewReader("+OK\r\n"), 64).Array(); !errors.Is(err, resp.ErrProtocol) {
		t.Errorf("Array of a string = %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("+OK\r\n")
	f.Add("*2\r\n$1\r\na\r\n:1\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := resp.NewReader(strings.NewReader(text), 64)
		for {
			if err := r.Skip(); err != nil {
				var reply resp.Error
				if !errors.As(err, &reply) {
					break
				}
			}
		}
		resp.Words([]byte(text))
	})
}
