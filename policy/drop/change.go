package drop

import (
	"time"

	"inferplan/policy"
)

// loseWorker assigns the tasks of a lost worker to others.
func (b *broker) lose(now time.Duration, w *worker, out *policy.Actions) {
	if w.running {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: w.device})
		b.idle(w)
		b.left = append(b.left, w.current...)
		b.watch.note(w.current, queued)
	}
	w.up, w.loading, w.lost = false, false, true
	b.left = w.empty(b.left)
	b.fleet.enlist(w.module)
	b.resend(now, w.module, out)
}

// resendTasks assigns the tasks in toResend anew.
func (b *broker) resend(now time.Duration, m int32, out *policy.Actions) {
	for i := range b.left {
		if b.book.Wanted(&b.left[i]) {
			b.send(now, m, b.left[i], out)
		}
	}
	b.left = b.left[:0]
}

// handleReturned requeues the tasks of a batch that returned without a result. If its network is not loaded, the worker
// loads it again.
func (b *broker) returned(now time.Duration, w *worker, why policy.Return, out *policy.Actions) {
	b.idle(w)
	b.left = append(b.left, w.current...)
	b.watch.note(w.current, queued)
	if why == policy.ReturnNotLoaded && w.up {
		w.up = false
		if w.wanted {
			b.fleet.load(w, out)
		}
		b.left = w.empty(b.left)
		b.fleet.enlist(w.module)
	}
	b.next(now, w, out)
	b.resend(now, w.module, out)
}
