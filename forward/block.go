package forward

import "github.com/sluicehq/sluice/internal/resp"

// A block is a sequence of commands, encoded as they are sent. A commit that is
// sent again sends the same bytes.
type block struct {
	buf    []byte
	starts []int // of each command
}

// Command begins a command of n arguments. With Text and Bytes it makes a block a
// cache.Writer.
func (b *block) Command(name string, n int) {
	b.starts = append(b.starts, len(b.buf))
	b.buf = resp.AppendBulk(resp.AppendCommand(b.buf, n+1), name)
}

// Text appends an argument.
func (b *block) Text(arg string) { b.buf = resp.AppendBulk(b.buf, arg) }

// Bytes appends an argument.
func (b *block) Bytes(arg []byte) { b.buf = resp.AppendBulk(b.buf, arg) }

// len returns the number of commands.
func (b *block) len() int { return len(b.starts) }

// part returns the commands from up to to, as they are sent.
func (b *block) part(from, to int) part {
	end := len(b.buf)
	if to < len(b.starts) {
		end = b.starts[to]
	}
	begin := end
	if from < to {
		begin = b.starts[from]
	}
	return part{block: b, from: from, to: to, bytes: b.buf[begin:end]}
}

// add appends a command that is encoded already.
func (b *block) add(command []byte) {
	b.starts = append(b.starts, len(b.buf))
	b.buf = append(b.buf, command...)
}

// A part is some consecutive commands of a block.
type part struct {
	block    *block
	from, to int
	bytes    []byte
}

func (p part) len() int { return p.to - p.from }

// command returns the bytes of the ith command.
func (p part) command(i int) []byte { return p.block.part(p.from+i, p.from+i+1).bytes }

// words returns the words of the ith command. It is for what happens seldom.
func (p part) words(i int) [][]byte {
	words, err := resp.Words(p.command(i))
	if err != nil {
		panic("forward: a command was encoded wrongly: " + err.Error())
	}
	return words
}
