package listener

// Remembered returns the number of event types whose listeners are remembered.
func (r *Registry) Remembered() int { return len(*r.matches.Load()) }
