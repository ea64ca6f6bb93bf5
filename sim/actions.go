package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// applyAction carries out one action of the policy, at the time of the event to which it answers. An action that
// the run cannot carry out, such as a task that does not exist, ends the run with an error.
func (l *loop) applyAction(a *policy.Action) {
	switch a.Kind {
	// Batches and requests.
	case policy.Dispatch:
		l.dispatchBatch(a)
	case policy.Drop:
		if err := l.ledger.dropRequest(l.agenda.now, a.Req, a.Reason); err != nil {
			l.failRun(err)
		} else if l.flow != nil {
			l.flow.dropTasks(a.Req, a.Task)
		}
	case policy.Wake:
		l.setTimer(a.Tag, a.At)
	case policy.Abort:
		l.abortBatch(a.Batch)

	// Networks, session states, and evictions from instances.
	case policy.Load, policy.Unload:
		if a.Kind == policy.Load && l.flow != nil && l.flow.stats != nil {
			l.flow.stats.workerOrdered(a.Device)
		}
		l.hosts[l.hostByDevice[a.Device]].handleOrder(networkOrder{network: a.Network, device: a.Device, key: a.Key, load: a.Kind == policy.Load})
	case policy.Evict:
		l.evictBatch(a.Batch, a.Tag == 1)

	// The other actions of cascades and of requests with several tasks.
	case policy.SwitchMode:
		if err := l.ending.switchMode(a.Tag); err != nil {
			l.failRun(err)
		}
	case policy.Replan:
		l.replan(a.Tag)
	case policy.Complete:
		if err := l.ending.completeRequest(a.Req); err != nil {
			l.failRun(err)
		}
	case policy.Place:
		if l.flow == nil {
			l.failRun(fmt.Errorf("the policy places task slot %d, whose inputs are the client's", a.Task))
			return
		}
		l.flow.placeTask(a.Task, a.Device)
	default:
		l.failRun(fmt.Errorf("the policy asks for action %d, which there is not", a.Kind))
	}
}

// setTimer carries out the policy's action Wake: it sets the timer of a tag, moves it if it is set already, or,
// with a negative time, stops it. A time in the past fires at once. There is one timer for each tag.
func (l *loop) setTimer(tag int32, wakeAt time.Duration) {
	for int(tag) >= len(l.timers) {
		l.timers = append(l.timers, kernel.NoEvent)
	}
	h := &l.timers[tag]
	switch {
	case wakeAt < 0 && *h == kernel.NoEvent:
	case wakeAt < 0:
		l.agenda.heap.Remove(*h)
		*h = kernel.NoEvent
	case *h == kernel.NoEvent:
		*h = l.agenda.schedule(max(wakeAt, l.agenda.now), policy.Timer, int64(tag), agendaEntry{kind: isTimer, batch: tag})
	default:
		l.agenda.heap.Move(*h, max(wakeAt, l.agenda.now))
	}
}

// dispatchBatch accepts a batch from the policy, enters it and its tasks into the books of the run, and passes it
// to the host (devices or instances) of its first device. Host 0 is called directly, which is faster than through
// the table.
func (l *loop) dispatchBatch(a *policy.Action) {
	for a.Batch >= int32(len(l.batches.list)) {
		l.batches.grow(2 * int32(len(l.batches.list)))
	}

	// Check the dispatch, if the run verifies.
	tasks, hops := l.actions.BatchOf(a)
	if l.cfg.Verify {
		if err := verifyDispatch(l, a, tasks, hops); err != nil {
			l.failRun(err)
			return
		}
	}

	// Enter the batch and its tasks, then hand it to the host of its first device.
	l.batches.addBatch(a, &l.tables.Pipelines[a.Pipeline], hops)
	members := l.batches.memberTasks[a.Batch*l.batches.maxBatch:]
	for i, t := range tasks {
		members[i] = t
		l.ledger.enterBatch(t)
	}
	if hostNumber := l.hostByDevice[hops[0].Device]; hostNumber == 0 {
		l.baseHost.dispatch(a.Batch)
	} else {
		l.hosts[hostNumber].dispatch(a.Batch)
	}
}

// hostOf returns the host that has a batch.
func (l *loop) hostOf(slot int32) host {
	return l.hosts[l.hostByDevice[l.batches.hopAt(slot, 0).Device]]
}

// abortBatch ends a batch for the policy. Its tasks wait again.
func (l *loop) abortBatch(slot int32) {
	if slot < 0 || int(slot) >= len(l.batches.list) || !l.batches.at(slot).live {
		l.failRun(fmt.Errorf("the policy aborts batch slot %d, which is not under way", slot))
		return
	}
	l.hostOf(slot).abort(slot)
	l.endWithoutResult(slot)
}

// endWithoutResult ends a batch that was aborted or returned. Its tasks wait again, unless their requests have
// ended; then their slots are freed.
func (l *loop) endWithoutResult(slot int32) {
	for _, t := range l.batches.members(slot) {
		if !l.ledger.leaveBatch(t, policy.TaskWaiting) && l.flow != nil {
			l.ledger.tasks.ReleaseIfUnread(t)
		}
	}
	l.batches.at(slot).live = false
}

// evictBatch orders the instance of a batch to take it off, when the policy evicts it. With keepKV its KV state
// goes to the host's memory. The policy hears when the batch has left.
func (l *loop) evictBatch(slot int32, keepKV bool) {
	if slot < 0 || int(slot) >= len(l.batches.list) || !l.batches.at(slot).live {
		l.failRun(fmt.Errorf("the policy evicts batch slot %d, which is not under way", slot))
		return
	}
	l.hostOf(slot).evict(slot, keepKV)
}

// returnBatchToPolicy ends a batch without a result and tells the policy the reason. tokens
// holds how many tokens each task has; the list belongs to the host.
func (l *loop) returnBatchToPolicy(slot, device int32, reason policy.ReturnReason, tokens []int32) {
	ev := l.beginBatchEvent(policy.BatchReturned, slot, device)
	ev.Value, ev.List = int64(reason), tokens
	l.endWithoutResult(slot)
	l.tellPolicy()
}
