// Package resp writes and reads the second version of Redis's protocol, where
// going through a client costs more than what is sent: a commit's commands are
// encoded as they come to be, and of its replies hardly anything is looked at.
//
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// AppendCommand begins a command of n words, its name included.
func AppendCommand(dst []byte, n int) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

// AppendBulk appends a word.
func AppendBulk[S ~string | ~[]byte](dst []byte, word S) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(word)), 10)
	dst = append(dst, '\r', '\n')
	dst = append(dst, word...)
	return append(dst, '\r', '\n')
}

// AppendInt appends a word that is a decimal number.
func AppendInt(dst []byte, n int64) []byte {
	var buf [20]byte
	return AppendBulk(dst, strconv.AppendInt(buf[:0], n, 10))
}

// AppendWords appends a command of words.
func AppendWords(dst []byte, words ...string) []byte {
	dst = AppendCommand(dst, len(words))
	for _, word := range words {
		dst = AppendBulk(dst, word)
	}
	return dst
}

// ErrProtocol is wrapped by errors about bytes that are not of the protocol.
var ErrProtocol = errors.New("not redis's protocol")

// Words returns the words of the encoded command that data begins with. They
// alias data.
func Words(data []byte) ([][]byte, error) {
	n, rest, err := length(data, '*')
	if err != nil {
		return nil, err
	}
	words := make([][]byte, 0, min(n, 1024))
	for range n {
		size, after, err := length(rest, '$')
		if err != nil {
			return nil, err
		}
		if len(after) < size+2 {
			return nil, fmt.Errorf("%w: a word breaks off", ErrProtocol)
		}
		words = append(words, after[:size])
		rest = after[size+2:]
	}
	return words, nil
}

func length(data []byte, kind byte) (n int, rest []byte, err error) {
	line, rest, ok := bytes.Cut(data, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != kind {
		return 0, nil, fmt.Errorf("%w: want a length with %q", ErrProtocol, kind)
	}
	n, err = strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 {
		return 0, nil, fmt.Errorf("%w: length %q", ErrProtocol, line[1:])
	}
	return n, rest, nil
}

// An Error is an error that Redis answers with. It says that the command was not
// executed, or failed; the connection is well.
type Error string

// Error returns Redis's text.
func (e Error) Error() string { return string(e) }

// A Reader reads replies. Its errors are Errors where Redis says so, ErrProtocol
// or the connection's where nothing can be read from it any more. Not safe for
// concurrent use.
type Reader struct {
	in *bufio.Reader
}

// NewReader returns a reader with a buffer of size bytes.
func NewReader(in io.Reader, size int) *Reader { return &Reader{in: bufio.NewReaderSize(in, size)} }

// line reads one line; text is valid until the next read.
func (r *Reader) line() (kind byte, text []byte, err error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		line, err = r.in.ReadBytes('\n')
		line = append(long, line...)
	}
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, fmt.Errorf("%w: line %q", ErrProtocol, line)
	}
	return line[0], line[1 : len(line)-2], nil
}

func number(text []byte) (int, error) {
	n := 0
	digits := text
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, fmt.Errorf("%w: number %q", ErrProtocol, text)
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: number %q", ErrProtocol, text)
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// Skip reads one reply, whatever it is, and forgets it. Errors inside an array
// are forgotten too.
func (r *Reader) Skip() error {
	kind, text, err := r.line()
	if err != nil {
		return err
	}
	switch kind {
	case '+', ':':
		return nil
	case '-':
		return Error(text)
	case '$':
		n, err := number(text)
		if err == nil && n >= 0 {
			_, err = r.in.Discard(n + 2)
		}
		return err
	case '*':
		n, err := number(text)
		for ; err == nil && n > 0; n-- {
			if err = r.Skip(); isError(err) {
				err = nil
			}
		}
		return err
	}
	return fmt.Errorf("%w: reply of kind %q", ErrProtocol, kind)
}

func isError(err error) bool {
	_, is := err.(Error)
	return is
}

// Array reads the head of an array: how many replies follow that belong to it;
// -1 for nil.
func (r *Reader) Array() (n int, err error) {
	kind, text, err := r.line()
	switch {
	case err != nil:
		return 0, err
	case kind == '-':
		return 0, Error(text)
	case kind != '*':
		return 0, fmt.Errorf("%w: reply of kind %q, want an array", ErrProtocol, kind)
	}
	return number(text)
}

// Text reads a string or a number; ok is false for nil.
func (r *Reader) Text() (text string, ok bool, err error) {
	kind, line, err := r.line()
	if err != nil {
		return "", false, err
	}
	switch kind {
	case '+', ':':
		return string(line), true, nil
	case '-':
		return "", false, Error(line)
	case '$':
		n, err := number(line)
		if err != nil || n < 0 {
			return "", false, err
		}
		if n > 512<<20 {
			return "", false, fmt.Errorf("%w: string of %d bytes", ErrProtocol, n)
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r.in, body); err != nil {
			return "", false, err
		}
		return string(body[:n]), true, nil
	}
	return "", false, fmt.Errorf("%w: reply of kind %q, want a string", ErrProtocol, kind)
}
