package replay

// A task is a listener that is to be run for an entry.
type task struct {
	entry    *entry
	unit     *unit
	listener *bound
	attempt  int // of the run that is next or going on, from 1
	epoch    int // of the stream when it was last started
	state    taskState
	next     *task
	err      error   // of the last run that failed
	before   bool    // a former owner's record has it
	mates    []*task // of a batch: the others that run with it
}

type taskState uint8

const (
	queued  taskState = iota // in its unit's list
	running                  // being run
	waiting                  // for its backoff to end
	ended                    // its listener has succeeded, or need not run
	failed                   // its listener was given up
	dropped                  // taken out because the lane was lost or closes
)

// An outcome is how a run ended.
type outcome uint8

const (
	succeeded outcome = iota
	retry             // to be run again when the core is told to wake it
	gaveUp            // not to be run again
	revoked           // the lease has ended before it started; it did not run
	postponed         // the run was cut short for another entry's sake: to be run again now
)

// start notes that a task runs.
func (t *task) start() {
	t.state = running
	t.epoch = t.entry.src.epoch
	t.entry.running++
	t.entry.src.running++
}
