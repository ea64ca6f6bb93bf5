package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// applyAction carries out one action of the policy, at the time of the event to which it answers; tellPolicy calls it.
// An action that the run cannot carry out, such as a drop of a request that is not open, ends the run with an error. Of
// an action, Tag is a number whose meaning depends on the kind of the action: a timer, a gear (a cascade for a range of
// rates), a search, or, for an eviction, 1 if the KV memory of the sequence is to be saved.
func (l *loop) applyAction(action *policy.Action) {
	switch action.Kind {
	// Batches and requests.
	case policy.Dispatch:
		l.dispatchBatch(action)
	case policy.Drop:
		if err := l.ledger.dropRequest(l.agenda.now, action.Req, action.Reason); err != nil {
			l.failRun(err)
		} else if l.flow != nil {
			l.flow.dropTasks(action.Req, action.Task)
		}
	case policy.Wake:
		l.setTimer(action.Tag, action.At)
	case policy.Abort:
		l.abortBatch(action.Batch)

	// Networks, session states (what a service keeps of a request on a device), and evictions from instances.
	case policy.Load, policy.Unload:
		if action.Kind == policy.Load && l.flow != nil && l.flow.stats != nil {
			l.flow.stats.workerOrdered(action.Device)
		}
		l.hosts[l.hostByDevice[action.Device]].handleOrder(networkOrder{network: action.Network, device: action.Device, key: action.Key, isLoad: action.Kind == policy.Load})
	case policy.Evict:
		l.evictBatch(action.Batch, action.Tag == 1)

	// The other actions of cascades and of requests with several tasks.
	case policy.SwitchMode:
		if err := l.ending.switchMode(action.Tag); err != nil {
			l.failRun(err)
		}
	case policy.Replan:
		l.replan(action.Tag)
	case policy.Complete:
		if err := l.ending.completeRequest(action.Req); err != nil {
			l.failRun(err)
		}
	case policy.Place:
		if l.flow == nil {
			l.failRun(fmt.Errorf("the policy places task slot %d, whose inputs are the client's", action.Task))
			return
		}
		l.flow.placeTask(action.Task, action.Device)
	default:
		l.failRun(fmt.Errorf("the policy asks for action %d, which there is not", action.Kind))
	}
}

// setTimer carries out the policy's action Wake: it sets the timer with a tag (a number that the policy chose) to
// wakeAt, moves it if it is set already, or, with a negative time, stops it. A time in the past fires at once. There
// is one timer for each tag.
func (l *loop) setTimer(tag int32, wakeAt time.Duration) {
	for int(tag) >= len(l.timers) {
		l.timers = append(l.timers, kernel.NoEvent)
	}
	handle := &l.timers[tag]
	switch {
	case wakeAt < 0 && *handle == kernel.NoEvent:
	case wakeAt < 0:
		l.agenda.heap.Remove(*handle)
		*handle = kernel.NoEvent
	case *handle == kernel.NoEvent:
		*handle = l.agenda.schedule(max(wakeAt, l.agenda.now), policy.Timer, int64(tag), agendaEntry{kind: timerEntry, subject: tag})
	default:
		l.agenda.heap.Move(*handle, max(wakeAt, l.agenda.now))
	}
}

// dispatchBatch carries out the policy's action Dispatch: it enters the batch and its tasks into the run's tables,
// and passes the batch to the host (the part that simulates devices or instances) of its first device. Host 0 is
// called directly, which is faster than through the table.
func (l *loop) dispatchBatch(action *policy.Action) {
	for action.Batch >= int32(len(l.batches.list)) {
		l.batches.grow(2 * int32(len(l.batches.list)))
	}

	// Check the dispatch, if the run verifies.
	tasks, hops := l.actions.BatchOf(action)
	if l.cfg.Verify {
		if err := verifyDispatch(l, action, tasks, hops); err != nil {
			l.failRun(err)
			return
		}
	}

	// Enter the batch and its tasks, then hand it to the host of its first device.
	l.batches.addBatch(action, &l.tables.Pipelines[action.Pipeline], hops)
	members := l.batches.memberTasks[action.Batch*l.batches.maxBatch:]
	for position, task := range tasks {
		members[position] = task
		l.ledger.enterBatch(task)
	}
	if hostNumber := l.hostByDevice[hops[0].Device]; hostNumber == stageHost {
		l.baseHost.dispatch(action.Batch)
	} else {
		l.hosts[hostNumber].dispatch(action.Batch)
	}
}

// hostOf returns the host that executes the batch in a slot.
func (l *loop) hostOf(batchSlot int32) host {
	return l.hosts[l.hostByDevice[l.batches.hopAt(batchSlot, 0).Device]]
}

// abortBatch carries out the policy's action Abort: it takes the batch in a slot from its host and ends it. Its tasks
// wait again.
func (l *loop) abortBatch(batchSlot int32) {
	if batchSlot < 0 || int(batchSlot) >= len(l.batches.list) || !l.batches.at(batchSlot).isLive {
		l.failRun(fmt.Errorf("the policy aborts batch slot %d, which is not under way", batchSlot))
		return
	}
	l.hostOf(batchSlot).abort(batchSlot)
	l.endWithoutResult(batchSlot)
}

// endWithoutResult ends the batch in a slot, which was aborted or returned, in the tables of the run. Its tasks wait
// again, unless their requests have ended; then the slots of the tasks are freed, except those whose outputs other
// tasks have yet to read.
func (l *loop) endWithoutResult(batchSlot int32) {
	for _, task := range l.batches.members(batchSlot) {
		if !l.ledger.leaveBatch(task, policy.TaskWaiting) && l.flow != nil {
			l.ledger.tasks.ReleaseIfUnread(task)
		}
	}
	l.batches.at(batchSlot).isLive = false
}

// evictBatch carries out the policy's action Evict: it orders the instance of the batch in a slot to take the batch
// off. With keepKV its KV state goes to the host's memory. The policy hears when the batch has left.
func (l *loop) evictBatch(batchSlot int32, keepKV bool) {
	if batchSlot < 0 || int(batchSlot) >= len(l.batches.list) || !l.batches.at(batchSlot).isLive {
		l.failRun(fmt.Errorf("the policy evicts batch slot %d, which is not under way", batchSlot))
		return
	}
	l.hostOf(batchSlot).evict(batchSlot, keepKV)
}

// returnBatchToPolicy ends the batch in a slot without a result and tells the policy the reason. tokens says for each
// of its tasks how many tokens were generated; the list belongs to the host.
func (l *loop) returnBatchToPolicy(batchSlot, device int32, reason policy.ReturnReason, tokens []int32) {
	ev := l.beginBatchEvent(policy.BatchReturned, batchSlot, device)
	ev.Value, ev.List = int64(reason), tokens
	l.endWithoutResult(batchSlot)
	l.tellPolicy()
}
