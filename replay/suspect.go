package replay

import "slices"

// An entry that was in a process's hand when that died may be what it died of.
// Those that have been delivered twice or more are suspects: they stay pending for
// the consumer that died, and are run one at a time in the whole process, each
// claimed for a consumer of its own name, <worker>!, when its turn has come.
// Meanwhile its key's further entries wait, and all others flow. So an entry that
// kills processes is alone under such a name when it does, and only one that is
// found there has its deaths held against it.
type suspicion struct {
	suspect  *entry
	reserved bool      // for one that is being claimed
	awaiting []*source // that have asked in vain; told when the place is free
	told     []*source // to be told
}

// suspectMark ends the name of the consumer that suspects are claimed for.
const suspectMark = "!"

func (c *suspicion) occupied() bool { return c.suspect != nil || c.reserved }

// reserve takes the suspect's place for the one at the head of k.
func (c *suspicion) reserve(s *source, k *keyQueue) bool {
	if k.places > 0 { // what is before it in hand goes first
		return false
	}
	if c.occupied() {
		if !slices.Contains(c.awaiting, s) {
			c.awaiting = append(c.awaiting, s)
		}
		return false
	}
	c.reserved = true
	return true
}

// release gives a reserved place back, whether or not it was taken.
func (c *suspicion) release() {
	c.reserved = false
	if c.suspect == nil {
		c.tell()
	}
}

// cleared reports whether an entry has the suspect's place and all its listeners have
// run: it has not killed the process. Further runs are like those of any entry.
func (c *suspicion) cleared(e *entry) bool {
	if c.suspect != e {
		return false
	}
	for i := range e.tasks {
		if s := e.tasks[i].state; s == queued || s == running {
			return false
		}
	}
	return true
}

// absolve frees the suspect's place if it is this entry's. By then Redis does not have
// the entry under the suspect's consumer any more: the next one may kill the process
// at once, and this one must not be found there.
func (c *suspicion) absolve(e *entry) {
	if c.suspect == e {
		c.suspect = nil
		c.tell()
	}
}

func (c *suspicion) tell() {
	c.told = append(c.told, c.awaiting...)
	c.awaiting = c.awaiting[:0]
}
