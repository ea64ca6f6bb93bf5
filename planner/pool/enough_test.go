package pool

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/highs"
)

// A search that was told what throughput is enough reaches it where the most is
// enough, and does no more work than the search for the most.
func TestEnough(t *testing.T) {
	work := func(o *Outcome) (n int64) {
		for _, p := range o.Phases {
			n += p.Iterations
		}
		return n
	}
	saved := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, size{models: 3, pools: 2, count: 4, shares: 2, blocks: 3, batches: 2, partitions: 2, memory: true, timePools: true})
		most, err := Solve(context.Background(), p, highs.Solver{}, Options{Gap: 1e-3, Any: true})
		if err != nil {
			t.Skip("there is no plan")
		}
		enough := most.Value * rapid.Float64Range(0.2, 1).Draw(t, "part")
		out, err := Solve(context.Background(), p, highs.Solver{}, Options{Gap: 1e-3, Any: true, Untold: true, Enough: enough})
		if err != nil || out.Value < enough*(1-1e-3) {
			t.Fatalf("%v, %+v: %g is enough, and %g is the most", err, out, enough, most.Value)
		}
		if work(out) > work(most) {
			t.Fatalf("%d simplex iterations to reach %g, and %d to reach %g", work(out), enough, work(most), most.Value)
		}
		saved += work(most) - work(out)
		none, err := Solve(context.Background(), p, highs.Solver{}, Options{Gap: 1e-3, Any: true, Untold: true, Enough: most.Bound * 1.1})
		if err == nil && (none.Value >= most.Bound*1.1 || math.IsNaN(none.Bound)) {
			t.Fatalf("%g with a bound of %g, and the bound of all plans is %g", none.Value, none.Bound, most.Bound)
		}
	})
	if saved == 0 {
		t.Error("nothing was saved")
	}
}
