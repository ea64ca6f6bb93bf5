package flow

import (
	"context"
	"errors"
	"testing"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// cancelling ends its context once so many programs were solved.
type cancelling struct {
	milp.Solver
	left int
	end  context.CancelFunc
}

func (c *cancelling) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := c.Solver.Solve(ctx, m, o)
	if c.left--; c.left == 0 {
		c.end()
	}
	return sol, err
}

// A search that ends early keeps the plan that it has, with a bound that holds of the plan
// of the whole search, too.
func TestInterrupted(t *testing.T) {
	p := four(2)
	whole, err := (&search{p: p, solver: highs.Solver{}, gap: .01}).throughput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for n := 1; ; n++ {
		ctx, end := context.WithCancel(t.Context())
		solver := &cancelling{highs.Solver{}, n, end}
		out, err := (&search{p: p, solver: solver, gap: .01}).throughput(ctx)
		end()
		if solver.left > 0 {
			break
		}
		if err != nil {
			if !errors.Is(err, context.Canceled) || kept > 0 {
				t.Fatalf("after %d programs: %v", n, err)
			}
			continue
		}
		kept++
		if p.factor(out.picked) < out.value*(1-1e-9) || out.value > whole.value*(1+1e-9) || out.bound < whole.value*(1-1e-9) {
			t.Errorf("after %d programs: %v within %v, the whole search finds %v", n, out.value, out.bound, whole.value)
		}
		if out.stopped != milp.StoppedByInterrupt && out.value < whole.value*(1-1e-9) {
			t.Errorf("after %d programs: stopped by %s", n, out.stopped)
		}
	}
	if t.Logf("%d plans kept", kept); kept < 5 {
		t.Errorf("%d plans kept, expected more than the last ones", kept)
	}
}
