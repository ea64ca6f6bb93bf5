package graph

import (
	"context"
	"errors"
	"testing"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// cancellingSolver ends its context once so many programs were solved.
type cancellingSolver struct {
	milp.Solver
	remainingSolves int
	cancel          context.CancelFunc
}

func (c *cancellingSolver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := c.Solver.Solve(ctx, m, o)
	if c.remainingSolves--; c.remainingSolves == 0 {
		c.cancel()
	}
	return sol, err
}

// A search that ends early keeps the plan that it has, with a bound that holds of the plan
// of the whole search, too.
func TestInterruptedSearchKeepsPlanAndBound(t *testing.T) {
	p := fiveModuleProblem(2)
	whole, err := (&planSearch{problem: p, solver: highs.Solver{}, gap: .01}).throughput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for n := 1; ; n++ {
		ctx, end := context.WithCancel(t.Context())
		solver := &cancellingSolver{highs.Solver{}, n, end}
		result, err := (&planSearch{problem: p, solver: solver, gap: .01}).throughput(ctx)
		end()
		if solver.remainingSolves > 0 {
			break
		}
		if err != nil {
			if !errors.Is(err, context.Canceled) || kept > 0 {
				t.Fatalf("after %d programs: %v", n, err)
			}
			continue
		}
		kept++
		if p.rateFactor(result.solution) < result.value*(1-1e-9) || result.value > whole.value*(1+1e-9) || result.bound < whole.value*(1-1e-9) {
			t.Errorf("after %d programs: %v within %v, the whole search finds %v", n, result.value, result.bound, whole.value)
		}
		if result.stoppedBy != milp.StoppedByInterrupt && result.value < whole.value*(1-1e-9) {
			t.Errorf("after %d programs: stopped by %s", n, result.stoppedBy)
		}
	}
	if t.Logf("%d plans kept", kept); kept < 5 {
		t.Errorf("%d plans kept, expected more than the last ones", kept)
	}
}
