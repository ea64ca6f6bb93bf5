package workflow

import (
	"math"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// tablesWithPaths are tables whose application asks for service 0 and then, in four of five
// requests, for service 1, else for 2; ten a second are planned.
func tablesWithPaths() *policy.Tables {
	planTables := testFleet(4, 3, 8).planTables
	planTables.Models[0].RPS = 10
	way := func(count, second int32) flow.RecordedPath {
		return flow.RecordedPath{Count: count, KnownTasks: 1, Tasks: []flow.PathTask{{Service: 0}, {Service: second, Reads: []int32{1}}}}
	}
	planTables.KindTables.(*flow.WorkflowTables).Paths = [][]flow.RecordedPath{{way(80, 1), way(20, 2)}}
	return planTables
}

// The first request already has its next task expected, and loaded, where the tables
// have ways. Without them nothing is expected.
func TestFirstRequestIsExpected(t *testing.T) {
	for _, known := range []bool{true, false} {
		tab := tablesWithPaths()
		if !known {
			tab.KindTables.(*flow.WorkflowTables).Paths = nil
		}
		d := &drivenPolicy{policy: New(tab, dyorcOptions)}
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: time.Minute})
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		ahead := d.policy.cluster.registry.requests[0].expectedTasks
		if known && (len(ahead) != 1 || d.policy.cluster.registry.tasks[ahead[0]].service != 1) || !known && len(ahead) > 0 {
			t.Errorf("ways are known: %v: %d tasks are expected", known, len(ahead))
		}
	}
}

// What a copy saves follows from planned rates before anything was asked for, and less
// and less of it from them.
func TestRatesAreExpected(t *testing.T) {
	p := New(tablesWithPaths(), dyorcOptions)
	for _, at := range []time.Duration{0, 300 * time.Second} {
		p.cluster.demand.valuedAt = -1
		p.cluster.demand.updateValues(int64(at))
		for n, want := range []float64{10, 8, 2} {
			want *= math.Exp(-at.Seconds() / 300)
			if got := 1e9 * p.cluster.demand.values[n]; math.Abs(got/want-1) > 1e-9 {
				t.Errorf("network %d is asked for %v times a second after %v, expected %v", n, got, at, want)
			}
		}
	}
	if p.cluster.demand.busyShare != maxPriorBusy { // 20 tasks of .6 s a second, on four devices
		t.Errorf("%v of the devices are busy, expected %v", p.cluster.demand.busyShare, maxPriorBusy)
	}
}
