package drop

import (
	"time"

	"inferplan/policy"
)

// loseWorker handles the loss of a worker's device: the running batch is aborted, and its tasks and those that wait go
// to other workers of the module.
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

// handleReturned handles a batch that returned from a worker without a result: its tasks are assigned to workers again.
// If its network was not loaded, the worker loads it again unless it is no longer wanted, and all tasks that wait for it
// go to other workers, too.
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
