package planner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/mutant"
)

// faulty is a solver that fails on some of its calls, by their numbers from 0.
type faulty struct {
	highs.Solver
	fails func(call int) bool
	mu    sync.Mutex
	calls int
}

func (s *faulty) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	s.mu.Lock()
	call := s.calls
	s.calls++
	s.mu.Unlock()
	if s.fails(call) {
		return nil, fmt.Errorf("model %q: %w: for a test", m.Name, milp.ErrFault)
	}
	return s.Solver.Solve(ctx, m, o)
}

// A search goes on without the steps on which the solver fails, and says so. Where it has no
// plan then, its error names the solver's.
func TestSearchGoesOnWhereTheSolverFails(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	tries := 4
	if os.Getenv("INFERPLAN_LONG") != "" {
		tries = 40
	}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		t.Run(name, func(t *testing.T) {
			in := inputsOf(t, problems[name])
			count := &faulty{fails: func(int) bool { return false }}
			full, err := planner.Solve(t.Context(), in, planner.Options{}, count, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for i := range tries {
				first := count.calls * i / tries
				for _, long := range []int{1, 2, 1 << 30} { // the second try of a model succeeds, or fails, too; or none works any more
					solver := &faulty{fails: func(call int) bool { return call >= first && call-first < long }}
					res, err := planner.Solve(t.Context(), in, planner.Options{}, solver, nil)
					_, infeasible := errors.AsType[*planner.InfeasibleError](err)
					switch {
					case infeasible:
						t.Errorf("failed from call %d on, %d times: %v", first, long, err)
					case err != nil && !errors.Is(err, milp.ErrFault):
						t.Errorf("failed from call %d on, %d times: %v, expected the solver's fault", first, long, err)
					case err != nil:
						got["no plan"]++
					case solver.calls > first && !slices.ContainsFunc(res.Plan.Warnings, func(w string) bool { return strings.Contains(w, "on which the solver failed") }):
						t.Errorf("failed from call %d on, %d times: the plan does not say so: %v", first, long, res.Plan.Warnings)
					default:
						got["plan"]++
						if full.Plan.StoppedBy == "proved" && res.Plan.StoppedBy == "proved" && res.Plan.Objective.Value < full.Plan.Objective.Value*(1-1e-6) && maximises(full.Plan.Objective.Name) {
							t.Errorf("failed from call %d on, %d times: proved %v, expected %v", first, long, res.Plan.Objective.Value, full.Plan.Objective.Value)
						}
					}
				}
			}
			t.Log(count.calls, got)
		})
	}
}

func maximises(objective string) bool {
	return slices.Contains([]string{"throughput", "goodput", "accuracy"}, objective)
}
