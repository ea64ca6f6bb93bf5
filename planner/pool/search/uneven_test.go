package search

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
)

const (
	ms = time.Millisecond
	mb = int64(1) << 20
)

// cutOnce is one model of two blocks on 4 fast devices behind one NIC and 6 slow
// ones on a node each: the slow ones are too slow for the whole of it.
func cutOnce(cut int64) *problem.Problem {
	cost := func(a, b time.Duration) []stages.ShareCosts {
		return []stages.ShareCosts{{Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{a, b}}}}, {Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{a * 19 / 10, b * 19 / 10}}}}}
	}
	return &problem.Problem{MarginShare: 0.4, Problem: stages.Problem{
		MaxPartitions: 2,
		Pools:         []stages.Pool{{Kind: "fast", Count: 4, MaxShares: 1, PerNode: 4, Gbps: 10}, {Kind: "slow", Count: 6, MaxShares: 2, PerNode: 1, Gbps: 10}},
		Models: []stages.Model{{
			Name: "m", SLO: 100 * ms, Margin: 40 * ms, Weight: 1, Weights: []int64{1, 1}, CutBytes: []int64{cut},
			ShareCosts: [][]stages.ShareCosts{cost(10*ms, 8*ms), cost(20*ms, 50*ms)},
		}},
	}}
}

// Where the NIC limits what passes, a device of the node is better off it: the
// others pass what the NIC or they can, and it serves whole requests.
func TestSolveUnevenUsesDevicesOffNIC(t *testing.T) {
	p := cutOnce(8 * mb) // 149 requests/s through 10 Gbit/s
	wire := 10e9 / 8 / float64(8*mb)
	even, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := SolveUneven(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A fast device takes 125 second halves a second, or 1000/18 whole requests.
	want := 0.0
	for on := 1; on <= 4; on++ {
		want = max(want, min(wire, 125*float64(on))+float64(4-on)*1000/18)
	}
	if math.Abs(outcome.Value-want) > 1e-6*want || even.Value >= outcome.Value {
		t.Errorf("found %v evenly and %v, expected %v", even.Value, outcome.Value, want)
	}
	if outcome.Bound < outcome.Value {
		t.Errorf("bound %v below the value %v", outcome.Bound, outcome.Value)
	}
	taken, passing := make([]int, 4), 0.0
	for i := range outcome.Pipelines {
		pl := &outcome.Pipelines[i]
		if len(pl.Stages) > 1 {
			passing += pl.RPS
		}
		for si, s := range pl.Stages {
			if s.Pool >= len(p.Pools) {
				t.Fatalf("a stage is on pool %d of %d", s.Pool, len(p.Pools))
			}
			for _, run := range pl.Placement[si] {
				for n := range run.Replicas / run.PerDevice {
					if s.Pool == 0 {
						taken[run.FirstDevice+n]++
					}
				}
			}
		}
	}
	if passing > wire*(1+1e-9) {
		t.Errorf("%v requests/s pass a NIC that takes %v", passing, wire)
	}
	for i, n := range taken {
		if n != 1 {
			t.Errorf("fast device %d holds %d replicas, expected one", i, n)
		}
	}
	for i, l := range outcome.Limits {
		if slices.ContainsFunc(outcome.Limits[:i], func(o formats.Limit) bool { return o.Constraint == l.Constraint }) {
			t.Errorf("two limits are called %s", l.Constraint)
		}
	}
}

// A NIC that limits nothing leaves the plan as it is.
func TestUnevenNICIdle(t *testing.T) {
	p := cutOnce(1000)
	even, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := SolveUneven(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Value != even.Value || len(outcome.Pipelines) != len(even.Pipelines) || outcome.Bound < even.Bound {
		t.Errorf("found %v in %d pipelines, bound %v; evenly %v in %d, %v", outcome.Value, len(outcome.Pipelines), outcome.Bound, even.Value, len(even.Pipelines), even.Bound)
	}
}

// Halves of slow devices plan as much as whole ones where the NIC limits both;
// whole ones are idle otherwise and take less of the SLO.
func TestShortenPipelinesUsesIdleDevices(t *testing.T) {
	p := cutOnce(12 * mb) // 99 requests/s pass
	p.Pools[0].Count, p.Pools[0].PerNode = 1, 1
	outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range outcome.Pipelines {
		for _, s := range outcome.Pipelines[i].Stages {
			if s.Share > 1 {
				t.Errorf("a stage takes 1/%d of devices that are idle otherwise: latency %v", s.Share, outcome.Pipelines[i].Latency)
			}
		}
	}
}
