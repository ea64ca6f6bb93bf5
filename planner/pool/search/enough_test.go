package search

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// A search that was told what throughput is enough reaches it where the most is
// enough, and does no more work than the search for the most.
func TestSearchStopsAtEnoughThroughput(t *testing.T) {
	work := func(o *problem.Outcome) (n int64) {
		for _, p := range o.Phases {
			n += p.Iterations
		}
		return n
	}
	saved := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 2, Count: 4, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, TimePools: true})
		most, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: 1e-3, NoPolish: true})
		if err != nil {
			t.Skip("there is no plan")
		}
		enough := most.Value * rapid.Float64Range(0.2, 1).Draw(t, "part")
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: 1e-3, NoPolish: true, NoDiagnosis: true, EnoughRPS: enough})
		if err != nil || outcome.Value < enough*(1-1e-3) {
			t.Fatalf("%v, %+v: %g is enough, and %g is the most", err, outcome, enough, most.Value)
		}
		if work(outcome) > work(most) {
			t.Fatalf("%d simplex iterations to reach %g, and %d to reach %g", work(outcome), enough, work(most), most.Value)
		}
		saved += work(most) - work(outcome)
		none, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: 1e-3, NoPolish: true, NoDiagnosis: true, EnoughRPS: most.Bound * 1.1})
		if err == nil && (none.Value >= most.Bound*1.1 || math.IsNaN(none.Bound)) {
			t.Fatalf("%g with a bound of %g, and the bound of all plans is %g", none.Value, none.Bound, most.Bound)
		}
	})
	if saved == 0 {
		t.Error("nothing was saved")
	}
}

// A search that was told a throughput below which a plan is of no use makes the same plan
// where there is that much, and ends with less work where it is proven that there is not.
func TestSearchStopsBelowLeastThroughput(t *testing.T) {
	work := func(o *problem.Outcome) (n int64) {
		for _, p := range o.Phases {
			n += p.Iterations
		}
		return n
	}
	saved := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 2, Count: 6, Shares: 2, Blocks: 3, Batches: 3, Partitions: 2})
		// Nothing is polished: a poorer plan may take more of that than the best one.
		o := problem.Options{Gap: 1e-6, Hurry: true, NoPolish: true}
		most, err := Solve(context.Background(), p, highs.Solver{}, o)
		if err != nil {
			t.Skip("there is no plan")
		}
		o.LeastRPS = most.Value * rapid.Float64Range(0.2, 1).Draw(t, "part")
		same, err := Solve(context.Background(), p, highs.Solver{}, o)
		if err != nil || same.Value != most.Value || same.Bound != most.Bound {
			t.Fatalf("%v, %+v: %g is the least, and there is %g within %g", err, same, o.LeastRPS, most.Value, most.Bound)
		}
		o.LeastRPS = most.Bound * 1.1
		none, err := Solve(context.Background(), p, highs.Solver{}, o)
		if err != nil || work(none) > work(most) || none.Bound < most.Value*(1-1e-9) {
			t.Fatalf("%v, %+v: %g is out of reach, and %g is the most", err, none, o.LeastRPS, most.Value)
		}
		saved += work(most) - work(none)
	})
	if saved == 0 {
		t.Error("nothing was saved")
	}
}
