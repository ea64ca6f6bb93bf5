package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// applyAction carries out an action of the policy.
func (l *loop) act(a *policy.Action) {
	switch a.Kind {
	// Batches and requests.
	case policy.Dispatch:
		l.dispatch(a)
	case policy.Drop:
		if err := l.drop(l.now, a.Req, a.Reason); err != nil {
			l.fail(err)
		} else if l.flow != nil {
			l.flow.dropped(a.Req, a.Task)
		}
	case policy.Wake:
		l.wake(a.Tag, a.At)
	case policy.Abort:
		l.abort(a.Batch)

	// Networks, session states, and evictions from instances.
	case policy.Load, policy.Unload:
		if a.Kind == policy.Load && l.flow != nil && l.flow.stats != nil {
			l.flow.stats.ordered(a.Device)
		}
		l.hosts[l.of[a.Device]].load(order{network: a.Network, device: a.Device, key: a.Key, up: a.Kind == policy.Load})
	case policy.Evict:
		l.evict(a.Batch, a.Tag == 1)

	// The other actions of cascades and of requests with several tasks.
	case policy.SwitchMode:
		if err := l.ending.mode(a.Tag); err != nil {
			l.fail(err)
		}
	case policy.Replan:
		l.replan(a.Tag)
	case policy.Complete:
		if err := l.ending.complete(a.Req); err != nil {
			l.fail(err)
		}
	case policy.Place:
		if l.flow == nil {
			l.fail(fmt.Errorf("the policy places task slot %d, whose inputs are the client's", a.Task))
			return
		}
		l.flow.place(a.Task, a.Device)
	default:
		l.fail(fmt.Errorf("the policy asks for action %d, which there is not", a.Kind))
	}
}

// setTimer sets the timer of a tag, moves it if it is set already, or, with a negative time,
// stops it.
func (l *loop) wake(tag int32, at time.Duration) {
	for int(tag) >= len(l.timers) {
		l.timers = append(l.timers, kernel.None)
	}
	h := &l.timers[tag]
	switch {
	case at < 0 && *h == kernel.None:
	case at < 0:
		l.heap.Remove(*h)
		*h = kernel.None
	case *h == kernel.None:
		*h = l.at(max(at, l.now), policy.Timer, int64(tag), item{what: isTimer, batch: tag})
	default:
		l.heap.Move(*h, max(at, l.now))
	}
}

// dispatch accepts a batch from the policy and passes it to its host.
func (l *loop) dispatch(a *policy.Action) {
	for a.Batch >= int32(len(l.batches)) {
		l.grow(2 * int32(len(l.batches)))
	}

	// Check the dispatch, if the run verifies.
	tasks, hops := l.actions.Dispatched(a)
	if l.cfg.Verify {
		if err := verifyDispatch(l, a, tasks, hops); err != nil {
			l.fail(err)
			return
		}
	}

	// Enter the batch and its tasks, then hand it to the host of its first device.
	l.put(a, &l.t.Pipelines[a.Pipeline], hops)
	inside := l.inside[a.Batch*l.most:]
	for i, t := range tasks {
		inside[i] = t
		l.enter(t)
	}
	if to := l.of[hops[0].Device]; to == 0 {
		l.base.dispatch(a.Batch)
	} else {
		l.hosts[to].dispatch(a.Batch)
	}
}

// hostOf returns the host that has a batch.
func (l *loop) hostOf(slot int32) host { return l.hosts[l.of[l.hop(slot, 0).Device]] }

// abort ends a batch for the policy. Its tasks wait again.
func (l *loop) abort(slot int32) {
	if slot < 0 || int(slot) >= len(l.batches) || !l.batches[slot].live {
		l.fail(fmt.Errorf("the policy aborts batch slot %d, which is not under way", slot))
		return
	}
	l.hostOf(slot).abort(slot)
	l.giveBack(slot)
}

// endWithoutResult ends a batch without a result. Its tasks wait again.
func (l *loop) giveBack(slot int32) {
	for _, t := range l.members(slot) {
		if !l.leave(t, policy.TaskWaiting) && l.flow != nil {
			l.tasks.Left(t)
		}
	}
	l.batches[slot].live = false
}

// evict takes a batch off its instance.
func (l *loop) evict(slot int32, keep bool) {
	if slot < 0 || int(slot) >= len(l.batches) || !l.batches[slot].live {
		l.fail(fmt.Errorf("the policy evicts batch slot %d, which is not under way", slot))
		return
	}
	l.hostOf(slot).evict(slot, keep)
}

// returnBatchToPolicy ends a batch without a result and tells the policy the reason. tokens
// holds how many tokens each task has; the list belongs to the host.
func (l *loop) returned(slot, device int32, why policy.Return, tokens []int32) {
	ev := l.beginBatch(policy.BatchReturned, slot, device)
	ev.Value, ev.List = int64(why), tokens
	l.giveBack(slot)
	l.tell()
}
