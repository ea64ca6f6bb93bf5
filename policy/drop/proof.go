package drop

import "time"

// feasibilityProof says that a queue can be served earliest deadline first until a time, even with some tasks more. Each
// full batch that is taken from the low end moves that time by a batch interval, so the rest is as early as before. So
// the queue is counted again only after many tasks.
type feasibilityProof struct {
	validUntil             time.Duration // start + batch + downstream up to which it holds; unused with several applications
	lateDeadline           time.Duration // later deadlines concern only the later half of the batches
	earlySpare, spareTasks int           // tasks that may be added: before lateDeadline, and in all
}

// isValid returns true if the proof still holds for a first end.
func (f *feasibilityProof) isValid(from time.Duration) bool {
	return f.earlySpare >= 0 && f.spareTasks >= 0 && from <= f.validUntil
}

// invalidate withdraws the proof.
func (f *feasibilityProof) invalidate() { f.spareTasks = -1 }

// addTask counts a task that was added to the queue in the proof (the result of an earlier count that the queue can
// be served in time): it takes up one of the spare places.
func (f *feasibilityProof) addTask(deadline time.Duration) {
	f.spareTasks--
	if deadline < f.lateDeadline {
		f.earlySpare--
	}
}
