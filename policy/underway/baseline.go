package underway

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// FarFuture is later than any time. Sums of a few of it do not overflow.
const FarFuture = time.Duration(1) << 60

// FirstLookShare is the least share of the planned batch that must be in time when a request first becomes the head of
// its queue (PPipe's artifact).
const FirstLookShare = 0.95

// RejectParameters returns an error if parameters are given to a policy that has none.
func RejectParameters(name string, params map[string]float64) error {
	if len(params) == 0 {
		return nil
	}
	return fmt.Errorf("policy %s: unknown parameter %q, expected none", name, slices.Min(slices.Collect(maps.Keys(params))))
}

// SetWake sets the timer at which a model's head is looked at again to wakeAt, unless it is set for that time already, which
// pending has. FarFuture stops the timer. Each model has a timer with its index as the tag.
func SetWake(pending *time.Duration, model int32, wakeAt time.Duration, out *policy.Actions) {
	if wakeAt == *pending {
		return
	}
	*pending = wakeAt
	if wakeAt >= FarFuture {
		wakeAt = -1 // stops the timer
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: model, Tag: model, At: wakeAt})
}

// DropHead drops the head (the request with the earliest deadline) of a model's queue for a reason. If the request
// was in a batch of a lost device before, that is the reason.
func DropHead(queue *waiting.Queue, model int32, reason policy.DropReason, out *policy.Actions) {
	request := queue.Pop()
	if request.WasLost {
		reason = policy.ReasonWorkerLost
	}
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: model, Req: request.Req})
}

// AbortOnDevice aborts the batches that cannot end without a lost device. Their requests wait again, each batch's in
// the queue that queueOf returns.
func (table *BatchTable) AbortOnDevice(device int32, queueOf func(*Batch) *waiting.Queue, out *policy.Actions) {
	for slot := range table.Len() {
		if table.NeedsDevice(slot, device) {
			table.Abort(slot, queueOf(table.BatchAt(slot)), out)
		}
	}
}
