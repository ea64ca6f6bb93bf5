package drop

import (
	"time"

	"inferplan/policy"
)

// loseWorker assigns the tasks of a lost worker (a module on a lost device), running and waiting ones, to other
// workers of its module.
func (b *broker) loseWorker(now time.Duration, w *worker, out *policy.Actions) {
	if w.isRunning {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: w.device})
		b.markIdle(w)
		b.toResend = append(b.toResend, w.runningBatch...)
		b.hopelessWatch.setStates(w.runningBatch, taskQueued)
	}
	w.networkLoaded, w.isLoading, w.isLost = false, false, true
	b.toResend = w.removeAll(b.toResend)
	b.workers.refreshLive(w.module)
	b.resendTasks(now, w.module, out)
}

// resendTasks assigns the tasks in toResend, which a lost worker or a failed batch has left, to workers anew,
// unless their requests were dropped.
func (b *broker) resendTasks(now time.Duration, m int32, out *policy.Actions) {
	for i := range b.toResend {
		if b.tasks.IsWanted(&b.toResend[i]) {
			b.assignTask(now, m, b.toResend[i], out)
		}
	}
	b.toResend = b.toResend[:0]
}

// handleReturned requeues the tasks of a batch that returned without a result. If its network was not loaded, the
// worker loads it again, and its tasks go to other workers meanwhile.
func (b *broker) handleReturned(now time.Duration, w *worker, reason policy.ReturnReason, out *policy.Actions) {
	b.markIdle(w)
	b.toResend = append(b.toResend, w.runningBatch...)
	b.hopelessWatch.setStates(w.runningBatch, taskQueued)
	if reason == policy.ReturnNotLoaded && w.networkLoaded {
		w.networkLoaded = false
		if w.isWanted {
			b.workers.startLoad(w, out)
		}
		b.toResend = w.removeAll(b.toResend)
		b.workers.refreshLive(w.module)
	}
	b.serveDevice(now, w, out)
	b.resendTasks(now, w.module, out)
}
