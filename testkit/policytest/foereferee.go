package policytest

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// referee holds what a policy does against the contract and the books. It keeps
// the first fault.
type referee struct {
	book *foeBook
	now  *time.Duration
	err  error
}

// fail notes a fault.
func (r *referee) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("at %v: %w", *r.now, fmt.Errorf(format, args...))
	}
}

// mayEnd returns whether the policy may complete or drop a request as it does.
func (r *referee) mayEnd(ev *policy.Event, act *policy.Action) bool {
	if act.Req < 0 || int(act.Req) >= len(r.book.requests) || !r.book.requests[act.Req].open {
		r.fail("on %+v the policy ends request slot %d, which it does not have", *ev, act.Req)
		return false
	}
	q := &r.book.requests[act.Req]
	switch {
	case act.Kind == policy.Complete && (!q.revealed || q.running > 0):
		r.fail("on %+v the policy completes request slot %d, which has no answer", *ev, act.Req)
	case act.Kind == policy.Drop && (act.Reason == policy.ReasonNone || act.Reason.String() == "unknown"):
		r.fail("on %+v the policy drops request slot %d without a reason", *ev, act.Req)
	}
	return r.err == nil
}

// mayDispatch returns whether the policy may send a batch.
func (r *referee) mayDispatch(act *policy.Action, tasks []int32, hops []policy.Hop) bool {
	pl := &r.book.tables.Pipelines[act.Pipeline]
	switch {
	case r.book.batches[act.Batch] != nil:
		r.fail("the policy dispatches batch slot %d, which is under way", act.Batch)
	case act.Size < 1 || act.Size > pl.Batch || len(tasks) != int(act.Size):
		r.fail("the policy dispatches a batch of %d, expected 1 to %d", act.Size, pl.Batch)
	case act.Model >= 0 && pl.Model != act.Model || len(hops) != int(pl.NumStages):
		r.fail("the policy dispatches a batch of model %d along %d hops of pipeline %d", act.Model, len(hops), act.Pipeline)
	}
	r.checkHops(act, pl, hops)
	for i, t := range tasks {
		if r.err == nil && (!r.mayRun(t, pl, act.Model) || slices.Contains(tasks[:i], t)) {
			r.fail("the policy dispatches task slot %d of model %d, which is not a waiting task of it", t, act.Model)
		}
	}
	return r.err == nil
}

// mayAsk returns whether the policy may load, evict or place as it does.
func (r *referee) mayAsk(ev *policy.Event, act *policy.Action) bool {
	switch act.Kind {
	case policy.Load, policy.Unload:
		if r.book.devices[act.Device].down {
			r.fail("on %+v the policy loads to device %d, which is lost", *ev, act.Device)
		}
	case policy.Evict:
		if b := r.book.batchAt(act.Batch); b == nil || r.book.tables.InstanceOf(b.hops[0].Device) < 0 {
			r.fail("on %+v the policy evicts batch slot %d, which is on no instance", *ev, act.Batch)
		}
	case policy.Place:
		if act.Task < 0 || int(act.Task) >= len(r.book.tasks) || r.book.tasks[act.Task].state != foeWaits {
			r.fail("on %+v the policy places task slot %d, which does not wait", *ev, act.Task)
		}
	}
	return r.err == nil
}

// checkHops holds the hops of a batch against the tables.
func (r *referee) checkHops(act *policy.Action, pl *policy.Pipeline, hops []policy.Hop) {
	for h := range hops {
		switch hop := &hops[h]; {
		case r.err != nil:
		case hop.Stage != pl.FirstStage+int32(h) || !slices.Contains(r.book.tables.DevicesOf(hop.Stage), hop.Device):
			r.fail("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", h, act.Pipeline, hop.Device, hop.Stage)
		case r.book.devices[hop.Device].down:
			r.fail("the policy sends a batch to device %d, which is lost", hop.Device)
		}
	}
}

// mayRun returns true if a task waits for a pipeline and all of its inputs are
// there. In a cascade all pipelines serve the one model of the plan.
func (r *referee) mayRun(t int32, pl *policy.Pipeline, model int32) bool {
	if t < 0 || int(t) >= len(r.book.tasks) || r.book.tasks[t].state != foeWaits {
		return false
	}
	ta := &r.book.tasks[t]
	if q := &r.book.requests[ta.req]; !q.open || model >= 0 && q.model != model {
		return false
	}
	return ta.service == pl.Service && r.book.readable(t)
}
