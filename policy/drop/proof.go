package drop

import "time"

// feasibilityProof says that a queue can be served earliest deadline first until a time, even with some tasks more. Each
// full batch that is taken from the low end moves that time by a batch interval, so the rest is as early as before. So
// the queue is counted again only after many tasks.
type proof struct {
	from         time.Duration // start + batch + downstream up to which it holds; unused with several applications
	late         time.Duration // later deadlines concern only the later half of the batches
	early, spare int           // tasks that may be added: before lateDeadline, and in all
}

// holds returns true if the proof still holds for a first end.
func (f *proof) holds(from time.Duration) bool { return f.early >= 0 && f.spare >= 0 && from <= f.from }

// invalidate withdraws the proof.
func (f *proof) void() { f.spare = -1 }

// addTask counts a task that was added to the queue.
func (f *proof) add(deadline time.Duration) {
	f.spare--
	if deadline < f.late {
		f.early--
	}
}
