package listener

// Remembered returns the number of event types whose listeners are remembered.
func (r *Registry) Remembered() int {
	r.matching.RLock()
	defer r.matching.RUnlock()
	return len(r.matches)
}
