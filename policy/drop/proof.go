package drop

import "time"

// feasibilityProof says that a queue can be served earliest deadline first until a time, even with some tasks more.
// Each full batch that is taken from the low end moves that time by a batch interval, so the rest is as early as
// before. So the queue is counted again only after many tasks.
type feasibilityProof struct {
	validUntil                  time.Duration // start + batch + downstream up to which it holds; unused with several applications
	lateDeadline                time.Duration // later deadlines concern only the later half of the batches
	spareEarlyTasks, spareTasks int           // tasks that may be added: before lateDeadline, and in all
}

// isValid reports whether the proof still holds for a queue whose first batch ends, with the time downstream, at firstEnd.
func (proof *feasibilityProof) isValid(firstEnd time.Duration) bool {
	return proof.spareEarlyTasks >= 0 && proof.spareTasks >= 0 && firstEnd <= proof.validUntil
}

// invalidate withdraws the proof that a queue can be served in time.
func (proof *feasibilityProof) invalidate() { proof.spareTasks = -1 }

// addTask notes in the proof that a task was added to the queue: it takes up one of the spare places, and one of the
// early ones if its deadline is early.
func (proof *feasibilityProof) addTask(deadline time.Duration) {
	proof.spareTasks--
	if deadline < proof.lateDeadline {
		proof.spareEarlyTasks--
	}
}
