package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// longRun plays many requests that come at once to two instances of two networks.
func longRun(t *testing.T, opt vqueue.Options, exact bool) (ends []time.Duration, pol *vqueue.Policy) {
	t.Helper()
	tab := instanceTables([]int32{0, 0}, 2, 4)
	pol, err := vqueue.New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	if exact {
		pol.DisableLazyCosts()
	}
	const n = 1200
	rng := seeded.New(1, "loose")
	p := &play{t: tab, pol: pol, endTimes: make([]time.Duration, n)}
	for requestNumber := range int32(n) {
		at := time.Duration(rng.IntN(30_000)) * time.Millisecond
		m := int32(rng.IntN(2)) // one network, two classes
		if rng.IntN(40) == 0 {
			m += 2
		}
		p.outputs = append(p.outputs, int32(50+rng.IntN(100)))
		p.schedule(at, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: m, Service: m, Tokens: 100 + rng.Int32N(200), Limit: 400, ArrivedAt: at, Deadline: at + tab.Models[m].SLO}, nil)
	}
	p.run(t)
	return p.endTimes, pol
}

// TestLongQueuesInOrder: where the order of queues does not depend on costs, long queues that are not computed anew at
// each change decide as those that are.
func TestLongQueuesInOrder(t *testing.T) {
	for _, rule := range []vqueue.QueueRule{vqueue.FCFS, vqueue.EDF} {
		for _, opt := range []vqueue.Options{{Rule: rule}, {Rule: rule, DisabledLSOs: [5]bool{vqueue.Balancing: true}}, {Rule: rule, FollowInstances: true}} {
			got, _ := longRun(t, opt, false)
			want, _ := longRun(t, opt, true)
			if slices.Contains(want, 0) || !slices.Equal(got, want) {
				t.Errorf("%+v: other ends than where queues are computed at each change", opt)
			}
		}
	}
}

// TestLongQueueIsSeenWhole: who looks at a long queue sees its starts in order, and its lateness.
func TestLongQueueIsSeenWhole(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 4)
	pol, err := vqueue.New(tab, vqueue.Options{Rule: vqueue.EDF})
	if err != nil {
		t.Fatal(err)
	}
	var out policy.Actions
	rng := seeded.New(2, "loose")
	for requestNumber := range int32(500) {
		out.Reset()
		pol.Handle(0, &policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Tokens: 200, Limit: 400, Deadline: time.Duration(rng.IntN(100_000)) * time.Millisecond}, &out)
	}
	groups := pol.QueueViews()[0].Groups
	if len(groups) != 496 {
		t.Fatalf("%d groups wait, want 496", len(groups))
	}
	for i := 1; i < len(groups); i++ {
		if groups[i].Start <= groups[i-1].Start || groups[i].Deadline < groups[i-1].Deadline {
			t.Fatalf("group %d starts at %v and is due at %v, the one before at %v and %v", i, groups[i].Start, groups[i].Deadline, groups[i-1].Start, groups[i-1].Deadline)
		}
	}
	if late, waiting, last := pol.ExpectedLateness(); waiting != 496 || late == 0 || late == waiting || last < groups[495].Start {
		t.Errorf("%d of %d are late, the last starts at %v", late, waiting, last)
	}
}
