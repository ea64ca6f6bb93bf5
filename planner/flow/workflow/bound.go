package workflow

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// objectiveBound returns a bound on the objective of workflows that holds for every plan: no larger rate factor (the common factor on all
// rates), or no lower price. It relaxes the program of batches: batches of any sizes may be mixed, there are no waits and no margins, and
// only the requests count that must be in time (a.visits has the ways of the fastest). If no bound is known, it returns NaN.
func (w *workflowProblem) objectiveBound(ctx context.Context) (float64, error) {
	relaxation := *w
	relaxation.withoutQueueing = true
	relaxation.apps = slices.Clone(w.apps)

	// Without margins, and with the demand of the requests that count.
	for i := range relaxation.apps {
		a := &relaxation.apps[i]
		a.margin = 0
		a.meanTasks, a.meanWork = relaxation.requestDemand(a, a.visits)
	}

	// For throughput, minimize the device time: the part of the busiest kind's time that the work at rate factor 1 takes, times all
	// devices. All devices divided by it are the largest rate factor. For a price, minimize that of whole devices of several kinds. With
	// one kind, the program minimizes the device time as it is, and the devices follow from it.
	counts := w.deviceCounts()
	batches, throughput := relaxation.newBatchProgram(counts), w.objective == "throughput"
	switch {
	case throughput:
		batches.minimizeBusiestKind(counts)
	case len(counts) > 1:
		for k, n := range counts {
			batches.limitKindTime(k, batches.program.AddInt("devices of "+w.pools[k].Device, 0, float64(n), w.prices[k]), 1)
		}
	}
	sol, err := w.run.Solver.Solve(ctx, batches.program, milp.Options{Gap: w.gap / 4, Seed: w.seed})
	switch {
	case err != nil:
		return math.NaN(), fmt.Errorf("bounding workflows: %w", err)
	case !sol.Feasible() || sol.Bound <= 0:
		return math.NaN(), nil
	case throughput:
		return float64(lists.Total(counts)) / sol.Bound * (1 + 1e-7), nil
	case len(counts) == 1:
		return math.Ceil(sol.Bound*(1-1e-7)) * w.prices[0], nil
	}
	return sol.Bound, nil
}

// boundScope names the plans that the bound holds for. If it holds for all plans, it returns "".
func (w *workflowProblem) boundScope() string {
	switch {
	case len(w.languageModels) > 0:
		return "at the mean lengths of prompts and answers"
	case len(w.apps) > 1:
		return "with the same batches for all applications"
	}
	return ""
}
