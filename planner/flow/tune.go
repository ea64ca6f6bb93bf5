package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/milp"
)

// certified is about how many requests a run of a certification has, where its
// duration allows it.
const certified = 20_000

// Certify stores in a plan the highest load of a grid at which every application
// attains what is asked.
func Certify(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	asked, err := asked.Of(plan, certified, 10*time.Second, 10*time.Minute)
	if err != nil {
		return err
	}
	cert, err := sim.Certify(ctx, plan, asked.Attainment, asked.Runs, asked.Duration, asked.Seed)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	plan.Certified = cert
	return nil
}

// autoMargins are the shares of the SLO that are tried. Two batches a module are
// planned for beside them.
var autoMargins = []float64{.1, .2, .3}

// tuning is a search for the margin, and for the number of devices, by simulation.
type tuning struct {
	p     *kind.Problem
	asked kind.Asked
	best  *kind.Result
	tried []string
}

// tune chooses the margin by what simulation certifies. For throughput that is the
// highest rate. For other objectives devices and batches change until the plan attains
// what is asked at its rates, see Sized, and the cheapest plan is taken. Every run has
// the same arrivals.
func tune(ctx context.Context, p *kind.Problem, asked kind.Asked, solve kind.Solver) (*kind.Result, error) {
	t, first, wall := &tuning{p: p, asked: asked}, error(nil), 0.
	var all []*kind.Result
	for _, m := range autoMargins {
		q := *p
		if err := q.Values.Set("margin", m); err != nil {
			return nil, err
		}
		res, err := solve(ctx, &q, p.Progress)
		var none *kind.InfeasibleError
		if errors.As(err, &none) {
			if first == nil { // the least margin leaves most
				first = err
			}
			continue
		}
		if err == nil {
			wall += res.WallMS
			if together(res.Plan) {
				all = append(all, res)
				continue
			}
			err = t.weigh(ctx, res)
		}
		if err != nil && (t.best == nil || ctx.Err() == nil) {
			return nil, err
		}
	}
	if len(all) > 0 {
		if err := t.weigh(ctx, all...); err != nil {
			return nil, err
		}
	}
	switch {
	case t.best == nil && first != nil:
		return nil, first
	case t.best == nil:
		return nil, &kind.InfeasibleError{Constraint: "devices", Simulated: true, Reason: fmt.Sprintf("simulation shows no plan with a margin of %s that attains %.4g at the rates of the applications", strings.Join(t.tried, ", "), max(asked.Attainment, .99))}
	}
	t.best.WallMS = wall
	t.best.Plan.Assumptions = append(t.best.Plan.Assumptions, fmt.Sprintf("margin %.2g chosen by simulation: %s", t.best.Plan.Options.Number("margin"), strings.Join(t.tried, ", ")))
	return t.best, nil
}

// together tells whether the plans of all margins are where one search starts.
func together(plan *formats.Plan) bool {
	return plan.Algorithm == AlgorithmPaths && sizes(plan)
}

// sizes tells whether devices join and leave: the rates are given, and requests of an
// application all have the same tasks.
func sizes(plan *formats.Plan) bool {
	return plan.Objective.Name != "throughput" && !formats.FlowOf(plan).Workflow()
}

// weigh certifies a plan, or what a search by simulation makes of some, and keeps it if
// it is the best so far. The first has the least margin.
func (t *tuning) weigh(ctx context.Context, list ...*kind.Result) error {
	res, up := list[0], list[0].Plan.Objective.Name == "throughput"
	var margins []string
	for _, r := range list {
		margins = append(margins, fmt.Sprintf("%.2g", r.Plan.Options.Number("margin")))
	}
	margin := strings.Join(margins, " or ")
	if sizes(res.Plan) {
		plan, err := t.sized(ctx, list)
		if err != nil {
			return err
		}
		if plan == nil {
			t.tried = append(t.tried, margin+" too few devices")
			return nil
		}
		if plan.Objective.Value != res.Plan.Objective.Value { // no longer the least that was proven
			plan.StoppedBy = string(milp.StoppedByWork)
			res.StoppedBy, res.Status = plan.StoppedBy, kind.Status(milp.StoppedByWork)
		}
		res.Plan = plan
	}
	if err := Certify(ctx, res.Plan, t.asked); err != nil {
		return err
	}
	value := res.Plan.Objective.Value
	t.tried = append(t.tried, fmt.Sprintf("%s certifies load %.4g of %.6g", margin, res.Plan.Certified.LoadFactor, value))
	if t.best == nil || up && value*res.Plan.Certified.LoadFactor > t.best.Plan.Objective.Value*t.best.Plan.Certified.LoadFactor || !up && value < t.best.Plan.Objective.Value {
		t.best = res
	}
	return nil
}

// sized is the cheapest plan that the search by simulation makes of some.
func (t *tuning) sized(ctx context.Context, list []*kind.Result) (*formats.Plan, error) {
	var plans []*formats.Plan
	for _, r := range list {
		plans = append(plans, r.Plan)
	}
	asked, err := t.asked.Of(plans[0], certified, 10*time.Second, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	return Sized(t.p, plans, asked.Attainment, func(plan *formats.Plan, hint bool) (float64, error) {
		few := asked
		if hint {
			few.Runs = 1
		}
		return attained(ctx, plan, few)
	})
}

// attained is the least attainment of the applications at the planned rates.
func attained(ctx context.Context, plan *formats.Plan, asked kind.Asked) (float64, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return 0, err
	}
	sc.Seed, sc.Duration, sc.Warmup = asked.Seed, asked.Duration, asked.Duration/10
	res, err := sim.Replicate(ctx, sc, asked.Runs)
	if err != nil {
		return 0, fmt.Errorf("simulating a plan: %w", err)
	}
	return slices.MinFunc(res.Report.Models, func(a, b formats.ModelReport) int {
		if a.Attainment < b.Attainment {
			return -1
		}
		return 1
	}).Attainment, nil
}
