package drop

import (
	"time"

	"inferplan/policy"
)

// loseWorker assigns the tasks of a lost worker (a module on a lost device), running and waiting ones, to other
// workers of its module.
func (b *broker) loseWorker(now time.Duration, worker *worker, out *policy.Actions) {
	if worker.isRunning {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: worker.device})
		b.markIdle(worker)
		b.toResend = append(b.toResend, worker.runningBatch...)
		b.hopelessWatch.setStates(worker.runningBatch, taskQueued)
	}
	worker.networkLoaded, worker.isLoading, worker.isLost = false, false, true
	b.toResend = worker.removeAll(b.toResend)
	b.workers.updateLiveWorkers(worker.module)
	b.resendTasks(now, worker.module, out)
}

// resendTasks assigns the tasks in toResend, which a lost worker or a failed batch has left, to workers anew,
// unless their requests were dropped.
func (b *broker) resendTasks(now time.Duration, module int32, out *policy.Actions) {
	for i := range b.toResend {
		if b.tasks.IsWanted(&b.toResend[i]) {
			b.assignTask(now, module, b.toResend[i], out)
		}
	}
	b.toResend = b.toResend[:0]
}

// handleReturned requeues the tasks of a batch that returned without a result. If its network was not loaded, the
// worker loads it again, and its tasks go to other workers meanwhile.
func (b *broker) handleReturned(now time.Duration, worker *worker, reason policy.ReturnReason, out *policy.Actions) {
	b.markIdle(worker)
	b.toResend = append(b.toResend, worker.runningBatch...)
	b.hopelessWatch.setStates(worker.runningBatch, taskQueued)
	if reason == policy.ReturnNotLoaded && worker.networkLoaded {
		worker.networkLoaded = false
		if worker.isWanted {
			b.workers.startLoad(worker, out)
		}
		b.toResend = worker.removeAll(b.toResend)
		b.workers.updateLiveWorkers(worker.module)
	}
	b.serveDevice(now, worker, out)
	b.resendTasks(now, worker.module, out)
}
