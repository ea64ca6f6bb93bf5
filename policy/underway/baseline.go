package underway

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// Never is later than anything; sums of a few of it do not overflow.
const Never = time.Duration(1) << 60

// FirstLook is the least share of the planned batch that must be in time at a
// head's first look, in PPipe's artifact.
const FirstLook = 0.95

// NoParameters refuses all parameters of a policy that has none.
func NoParameters(name string, params map[string]float64) error {
	if len(params) == 0 {
		return nil
	}
	return fmt.Errorf("policy %s: unknown parameter %q, expected none", name, slices.Min(slices.Collect(maps.Keys(params))))
}

// DropHead drops the head of a model's queue.
func DropHead(q *waiting.Queue, model int32, reason policy.Reason, out *policy.Actions) {
	r := q.Pop()
	if r.Lost {
		reason = policy.ReasonWorkerLost
	}
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: model, Req: r.Req})
}

// Lose aborts what cannot end without a device; the requests wait again in the
// queue that a batch has its from.
func (u *Table) Lose(device int32, queueOf func(*Batch) *waiting.Queue, out *policy.Actions) {
	for slot := range u.Len() {
		if u.Needs(slot, device) {
			u.Abort(slot, queueOf(u.At(slot)), out)
		}
	}
}
