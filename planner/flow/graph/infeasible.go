package graph

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// explainInfeasible returns the error for a problem without a plan: why there is none, and what would be nearest. It solves relaxed
// problems, one after the other until one has a plan: with lower rates, if the workload asks for rates (fixedRates), with longer SLOs, and
// with more devices.
func (s *planSearch) explainInfeasible(ctx context.Context, fixedRates bool) error {
	if fixedRates {
		result, err := s.throughput(ctx)
		switch {
		case err == nil:
			return &kind.InfeasibleError{Constraint: "devices", Reason: "the devices do not carry the rates of the applications within their SLOs",
				Nearest: kind.NearestFeasible{LoadFactor: math.Floor(result.value*1e6) / 1e6}}
		case !errors.Is(err, terms.ErrNoPlan):
			return err
		}
	}

	// If rates are not the reason, the SLOs may be: find the plan that stretches them least.
	result, err := s.minStretchPlan(ctx)
	if err == nil {
		// Where modules may take turns, the levels of the solution belong to a problem that the search made.
		if result.problem != nil {
			s = s.withProblem(result.problem)
		}
		return s.sloError(result.solution)
	}
	if !errors.Is(err, terms.ErrNoPlan) {
		return err
	}

	// If no SLO is long enough, devices are missing.
	if result, err = s.solveProgram(ctx, programQuery{goal: goalMissingDevices, maxFactor: 1}, milp.Options{}); err != nil {
		if errors.Is(err, terms.ErrNoPlan) {
			return &kind.InfeasibleError{Constraint: "devices", Reason: "some module was measured on no device that the cluster has"}
		}
		return err
	}
	e := &kind.InfeasibleError{Constraint: "devices", Reason: "there are fewer devices than models to deploy: each has devices of its own, unless the cluster says sharing: time and throughput is planned without a cold start"}
	if s.problem.hasTimeSharedPool() {
		e.Constraint, e.Reason = "memory", "the models that have no devices of their own do not fit together in the memory of devices on which they take turns"
	}

	// Per pool, the missing devices are those of the solution less those of the cluster.
	for k := range s.problem.pools {
		n := -s.problem.pools[k].count
		for u := range result.solution.devices {
			n += result.solution.devices[u][k]
		}
		if n > 0 {
			e.Nearest.Devices = append(e.Nearest.Devices, kind.MissingCount{Device: s.problem.pools[k].kind, Count: n})
		}
	}
	return e
}

// sloError returns an error that names the application whose SLO has to grow by the largest factor, with the least SLO that it keeps in
// solution x, the one that stretches the SLOs least.
func (s *planSearch) sloError(x *solution) error {
	worstApp, maxStretch := 0, 0.0
	for a := range s.problem.apps {
		if f := s.problem.longestPathTime(x, a).Seconds() / max(s.problem.apps[a].budget().Seconds(), 1e-9); f > maxStretch {
			worstApp, maxStretch = a, f
		}
	}
	a := &s.problem.apps[worstApp]
	requiredTime := s.problem.longestPathTime(x, worstApp)
	return &kind.InfeasibleError{Model: a.name, Constraint: "slo",
		Reason: fmt.Sprintf("no choice of batches and devices keeps the SLO of %s: its longest path takes %v, with %s and one's own in every module, and %v less the margin of %v leaves %v",
			a.name, requiredTime, terms.DescribeWait(s.problem.batchWait), a.slo, a.margin, a.budget()),
		Nearest: kind.NearestFeasible{SLOUS: float64(kind.MinSLO(requiredTime, a.margin.Seconds()/a.slo.Seconds())) / 1000}}
}
