package workflow

import (
	"math"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// knowing are tables whose application asks for service 0 and then, in four of five
// requests, for service 1, else for 2; ten a second are planned.
func knowing() *policy.Tables {
	t := testFleet(4, 3, 8).t
	t.Models[0].RPS = 10
	way := func(count, second int32) flow.Way {
		return flow.Way{Count: count, Known: 1, Tasks: []flow.WayTask{{Service: 0}, {Service: second, Reads: []int32{1}}}}
	}
	t.Own.(*flow.Workflows).Ways = [][]flow.Way{{way(80, 1), way(20, 2)}}
	return t
}

// The first request already has its next task expected, and loaded, where the tables
// have ways. Without them nothing is expected.
func TestFirstRequestIsExpected(t *testing.T) {
	for _, known := range []bool{true, false} {
		tab := knowing()
		if !known {
			tab.Own.(*flow.Workflows).Ways = nil
		}
		d := &driven{p: New(tab, dyorc)}
		d.tell(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: time.Minute})
		d.tell(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.tell(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		ahead := d.p.requests[0].ahead
		if known && (len(ahead) != 1 || d.p.tasks[ahead[0]].service != 1) || !known && len(ahead) > 0 {
			t.Errorf("ways are known: %v: %d tasks are expected", known, len(ahead))
		}
	}
}

// What a copy saves follows from planned rates before anything was asked for, and less
// and less of it from them.
func TestRatesAreExpected(t *testing.T) {
	p := New(knowing(), dyorc)
	for _, at := range []time.Duration{0, 300 * time.Second} {
		p.demand.valued = -1
		p.value(int64(at))
		for n, want := range []float64{10, 8, 2} {
			want *= math.Exp(-at.Seconds() / 300)
			if got := 1e9 * p.demand.values[n]; math.Abs(got/want-1) > 1e-9 {
				t.Errorf("network %d is asked for %v times a second after %v, expected %v", n, got, at, want)
			}
		}
	}
	if p.demand.busy != mostBusy { // 20 tasks of .6 s a second, on four devices
		t.Errorf("%v of the devices are busy, expected %v", p.demand.busy, mostBusy)
	}
}
