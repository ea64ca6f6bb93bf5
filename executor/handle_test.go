package executor

import (
	"testing"
	"time"

	"inferplan/policy"
)

// waker asks for a wake-up at every event.
type waker struct{ told int64 }

func (w *waker) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	w.told += int64(ev.Kind)
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: 1, At: now + time.Hour})
}

// An event on its way to the policy takes no memory from the heap.
func TestHandleAllocatesNothing(t *testing.T) {
	w := &waker{}
	c := &core{policy: w, stats: &stats{}, epoch: time.Now()}
	const runs = 1000
	if n := testing.AllocsPerRun(runs, func() {
		c.handle(policy.Event{Kind: policy.Timer, Value: 1})
	}); n != 0 {
		t.Errorf("%v allocations per event, expected none", n)
	}
	if want := int64(policy.Timer) * (runs + 1); w.told != want {
		t.Errorf("the policy was told kinds that add up to %d, expected %d", w.told, want)
	}
}
