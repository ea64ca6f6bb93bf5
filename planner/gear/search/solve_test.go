package search

import (
	"context"
	"errors"
	"math"
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// programs solves the linear programs of tests.
var programs milp.Solver = highs.Solver{}

func solver(t testing.TB) milp.Solver {
	if err := highs.Available(); err != nil {
		t.Skipf("the linear programs of the bound need HiGHS: %v", err)
	}
	return highs.Solver{}
}

// Planned accuracy and bound of an independent prototype of CascadeServe:
// enumeration and bound to 1e-4, accuracy to 5e-4.
func TestSolvePublishedAccuracies(t *testing.T) {
	for _, c := range []struct {
		name     string
		f        *family
		devices  int
		accuracy float64
		bound    float64 // envelope, without memory
		best     float64 // accuracy of the slowest gear; 0: not published
	}{
		{"bert5", &bert5, 1, .9250, .9256, 0},
		{"bert5", &bert5, 2, .9321, .9324, 0},
		{"bert5", &bert5, 3, .9343, .9345, .9356},
		{"bert5", &bert5, 4, .9351, .9352, 0},
		{"bert5", &bert5, 5, .9354, .9355, 0},
		{"llama4", &llama4, 4, .6466, .6502, 0},
		{"llama4", &llama4, 6, .6505, .6516, .6518},
	} {
		if c.f == &bert5 && c.devices > 1 && !long {
			continue
		}
		p := c.f.problem(t, c.devices, 10)
		plan := c.f.planOnce(t, c.devices)
		t.Logf("%s on %d: accuracy %.4f, bound %.4f, %d simulations, placement %v", c.name, c.devices, plan.Accuracy, plan.Bound, plan.RunCount, plan.Configs)
		if plan.Accuracy < c.accuracy-5e-4 { // above: trials tell wandering latencies from growing ones, and half batches are tried
			t.Errorf("%s on %d: accuracy %.4f, expected %.4f", c.name, c.devices, plan.Accuracy, c.accuracy)
		}
		all := cascades.Enumerate(p.PlanningSamples, p.Grid, usableOf(p))
		env := freeBounds(p, all)
		free := 0.0
		for r := range env {
			free += p.RangeWeights[r] * env[r]
		}
		if math.Abs(free-c.bound) > 1e-4 || plan.Bound > free+1e-9 || plan.Accuracy > plan.Bound+1e-9 {
			t.Errorf("%s on %d: bound %.5f, without memory %.5f, expected the latter %.4f and both above %.5f", c.name, c.devices, plan.Bound, free, c.bound, plan.Accuracy)
		}
		if gap := plan.Bound - plan.Accuracy; c.f == &bert5 && gap > .001 {
			t.Errorf("%s on %d: %.2f points below the bound, expected at most 0.1", c.name, c.devices, 100*gap)
		}
		if best := plan.Gears[0].Accuracy; c.best > 0 && math.Abs(best-c.best) > 1e-4 {
			t.Errorf("%s on %d: the slowest gear has accuracy %.4f, expected %.4f", c.name, c.devices, best, c.best)
		}
	}
}

// errSolver is the error of a solver that fails once.
var errSolver = errors.New("the solver fails")

// failingSolver solves so many programs, fails at the next one, and solves those after it.
type failingSolver struct{ remaining int }

func (s *failingSolver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	if s.remaining--; s.remaining == -1 {
		return nil, errSolver
	}
	return programs.Solve(ctx, m, o)
}

// Whichever program the solver fails at, the search returns its error, although it may have a plan by then.
func TestErrorOfASolverIsReturned(t *testing.T) {
	solver(t)
	for _, overRequests := range []bool{false, true} {
		p := lateModel(t)
		p.OverRequests = overRequests
		counting := &failingSolver{remaining: math.MaxInt}
		if _, err := Solve(t.Context(), p, counting, Options{Seed: 1}); err != nil {
			t.Fatal(err)
		}
		total := math.MaxInt - counting.remaining
		for n := range total {
			if _, err := Solve(t.Context(), p, &failingSolver{remaining: n}, Options{Seed: 1}); !errors.Is(err, errSolver) {
				t.Errorf("over all requests %v: after %d of %d programs the error is %v", overRequests, n, total, err)
			}
		}
		t.Logf("over all requests %v: %d programs", overRequests, total)
	}
}
