package vqueue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/policy/vqueue"
)

// TestEstimatesFollowInstances: instances take twice as long as planned, and answers
// are longer than planned. What follows them plans so after a while; what does not
// plans as before. While nothing waits nothing is learned of the throughput.
func TestEstimatesFollowInstances(t *testing.T) {
	each := func(follow bool, rate float64, outputs int32) (seconds, output float64) {
		tab := instanceTables([]int32{0, 0}, 1, 4)
		own := vqueue.TablesOf(tab)
		for i := range own.RCT {
			r := &own.RCT[i]
			r.Alpha, r.Beta, r.Decode, r.Prefill = r.Alpha/2, r.Beta/2, r.Decode/2, r.Prefill/2
		}
		p := playRequests(t, tab, vqueue.Options{FollowInstances: follow, NoReplan: true}, steadyRequests(rate, 0, 240*time.Second, 1, outputs))
		return p.pol.(*vqueue.Policy).PlannedWork(1)
	}
	const truth = (prefillSeconds + 100*decodeSeconds) / 4
	if got, _ := each(true, 20, 100); math.Abs(got-truth) > 0.06*truth { // two do 17.8 a second
		t.Errorf("a request is planned to take %.4f s, it takes %.4f", got, truth)
	}
	if got, _ := each(false, 20, 100); got != truth/2 {
		t.Errorf("nothing follows, and a request is planned to take %.4f s instead of %.4f", got, truth/2)
	}
	if got, output := each(true, 2, 150); math.Abs(output-150) > 3 || math.Abs(got-(prefillSeconds+150*decodeSeconds)/8) > 2e-3 { // a change of 1 % counts
		t.Errorf("instances that idle: %.4f s, %.0f tokens", got, output)
	}
}

// TestUrgentHeadsAreShared: a request that hurries behind a long answer is served by
// the other instance of its model before what is due later there.
func TestUrgentHeadsAreShared(t *testing.T) {
	tab := instanceTables([]int32{0, 0}, 1, 1)
	list := slices.Concat(sameRequests(1, 0, 1, 1000), sameRequests(1, 0, 1, 100), sameRequests(6, 10*time.Millisecond, 1, 100), sameRequests(2, 100*time.Millisecond, 0, 100))
	p := playRequests(t, tab, vqueue.Options{NoReplan: true}, list)
	if n := countLate(tab, p, list, 0); n > 0 {
		t.Errorf("%d of 2 urgent requests are late: they end at %v", n, p.endTimes[8:])
	}
	for _, opt := range []vqueue.Options{{NoReplan: true, DisabledLSOs: [5]bool{vqueue.Balancing: true}}, {Rule: vqueue.EDF}} {
		if p := playRequests(t, tab, opt, list); countLate(tab, p, list, 0) == 0 {
			t.Errorf("%+v: nobody is late, so this shows nothing", opt)
		}
	}
}
