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

// DropHead drops the head (the request with the earliest deadline) of a model's queue. If the request was in a
// batch of a lost device before, that is the reason.
func DropHead(q *waiting.Queue, model int32, reason policy.DropReason, out *policy.Actions) {
	r := q.Pop()
	if r.WasLost {
		reason = policy.ReasonWorkerLost
	}
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: model, Req: r.Req})
}

// AbortOnDevice aborts the batches that cannot end without a device. Their requests wait again in the queue that queueOf
// returns.
func (u *BatchTable) AbortOnDevice(device int32, queueOf func(*Batch) *waiting.Queue, out *policy.Actions) {
	for slot := range u.Len() {
		if u.NeedsDevice(slot, device) {
			u.Abort(slot, queueOf(u.BatchAt(slot)), out)
		}
	}
}
