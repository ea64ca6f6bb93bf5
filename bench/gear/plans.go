package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/solver/highs"
)

// planSeed is the seed of all plans but those of part time.
const planSeed = 7

// plan is a system with what was planned for it; of baselines, nothing is.
type plan struct {
	Accuracy, Bound float64
	*system         `json:"-"`
}

// planner makes a plan of a problem; it returns nil if there is none.
type planner func(context.Context, *cascades.Problem) (*trials.Plan, error)

// solve is our planner.
func solve(ctx context.Context, p *cascades.Problem) (*trials.Plan, error) {
	return solveSeeded(ctx, p, planSeed)
}

// solveSeeded is our planner with a seed.
func solveSeeded(ctx context.Context, p *cascades.Problem, seed uint64) (*trials.Plan, error) {
	found, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: seed})
	if _, infeasible := errors.AsType[*cascades.InfeasibleError](err); infeasible {
		return nil, nil
	}
	return found, err
}

// makePlan plans a problem, once; the name tells the plan from others at the place. It returns nil if there is no plan.
func makePlan(r *instrument.Run, p place, name string, problem func() (*cascades.Problem, error), by planner) (*plan, error) {
	made := sync.OnceValues(func() (*trials.Plan, error) {
		q, err := problem()
		if err != nil {
			return nil, err
		}
		return by(r.Ctx, q)
	})
	v, err := instrument.Measured(r, fmt.Sprintf("%s/%s/plan", p, name), func() (*plan, error) {
		found, err := made()
		if err != nil || found == nil {
			return nil, err
		}
		return &plan{Accuracy: found.Accuracy, Bound: found.Bound}, nil
	})
	if err != nil || v == nil {
		return nil, err
	}
	v.system = &system{p, name, sync.OnceValues(func() (*policy.Tables, error) {
		found, err := made()
		if err != nil {
			return nil, err
		}
		if found == nil {
			return nil, fmt.Errorf("%s/%s: a plan that was kept cannot be made again (-fresh measures all again)", p, name)
		}
		t := found.Tables()
		if found.Goal == cascades.LeastLatency {
			t.Models[0].SLO = found.Problem.SLO
		}
		return t, nil
	})}
	return v, nil
}

// changed returns a maker of the problem of a place with a change.
func (p place) changed(change func(*cascades.Problem)) func() (*cascades.Problem, error) {
	return func() (*cascades.Problem, error) {
		q, err := p.problem()
		if err == nil {
			change(q)
		}
		return q, err
	}
}

// measuredRates is the change of somebody who measured the rates and does not say what the SLO is over.
func measuredRates(f *published.Family) func(*cascades.Problem) {
	return func(q *cascades.Problem) { q.ScopeUnspecified, q.MeasuredRates = true, f.Rates }
}

// overRequests is the change to an SLO over all requests at the measured rates.
func overRequests(f *published.Family) func(*cascades.Problem) {
	return func(q *cascades.Problem) { q.OverRequests, q.MeasuredRates = true, f.Rates }
}

// altered returns the plan with a change of the tables of its gears, under a longer name.
func (v *plan) altered(suffix string, change func(*policygear.Tables) error) *plan {
	return &plan{system: &system{v.place, v.name + suffix, func() (*policy.Tables, error) {
		t, err := v.tables()
		if err != nil {
			return nil, err
		}
		changed, gears := *t, *policygear.TablesOf(t)
		changed.KindTables = &gears
		return &changed, change(&gears)
	}}}
}

// method makes a system for a place: a plan, or a baseline whose best variant is chosen on streams, on each of which it is in time. It
// returns nil if there is none.
type method func(r *instrument.Run, p place, streams []stream) (*plan, error)

// methodsByName are our planner and what it is compared with.
var methodsByName = map[string]method{
	"planner": func(r *instrument.Run, p place, _ []stream) (*plan, error) {
		return makePlan(r, p, "planner", p.changed(measuredRates(p.f)), solve)
	},
	"planner, all requests": func(r *instrument.Run, p place, _ []stream) (*plan, error) {
		return makePlan(r, p, "planner, all requests", p.changed(overRequests(p.f)), solve)
	},
	"no cascade": func(r *instrument.Run, p place, _ []stream) (*plan, error) {
		return makePlan(r, p, "no cascade", p.changed(func(q *cascades.Problem) { *q = *baseline.Singles(q) }), solve)
	},
	"no switching":               tuned(byProblem(baseline.NoSwitching)),
	"Cascadia-like":              tuned(cascadia(false)),
	"Cascadia-like, re-deployed": tuned(cascadia(true)),
	"MS+":                        tuned(byProblem(baseline.BestModelSwitching)),
	"DynBa":                      dynBa(0),
}

// ofFamily returns the method for a family, whichever the place is of.
func (build method) ofFamily(f *published.Family) method {
	return func(r *instrument.Run, p place, streams []stream) (*plan, error) {
		p.f = f
		return build(r, p, streams)
	}
}

// tuner chooses the variant of a baseline at a place.
type tuner func(*instrument.Run, place, *cascades.Problem, baseline.Runner) (*baseline.Tuned, error)

// tuned returns the method of a baseline.
func tuned(tune tuner) method {
	return func(r *instrument.Run, p place, streams []stream) (*plan, error) {
		q, err := p.problem()
		if err != nil {
			return nil, err
		}
		best, err := tune(r, p, q, func(name string, t *policy.Tables) (*baseline.Run, error) {
			runs, err := fixed(p, name, t).allInTime(r, streams)
			if err == nil && runs == nil {
				err = baseline.ErrLate
			}
			if err != nil {
				return nil, err
			}
			return pooled(runs), nil
		})
		if _, infeasible := errors.AsType[*cascades.InfeasibleError](err); infeasible || err == nil && best == nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return &plan{system: fixed(p, best.Name, best.Tables)}, nil
	}
}

// byProblem returns the tuner of a baseline that needs nothing but the problem.
func byProblem(tune func(*cascades.Problem, time.Duration, baseline.Runner) (*baseline.Tuned, error)) tuner {
	return func(_ *instrument.Run, p place, q *cascades.Problem, run baseline.Runner) (*baseline.Tuned, error) {
		return tune(q, p.slo, run)
	}
}

// dynBa returns the method of dynamic batching with the most accurate model that is in time; models below an accuracy are not tried.
func dynBa(least float64) method {
	return tuned(byProblem(func(q *cascades.Problem, target time.Duration, run baseline.Runner) (*baseline.Tuned, error) {
		return baseline.BestSingle(q, target, least, run)
	}))
}

// cascadia returns the tuner of plans as Cascadia makes them: on one deployment, or on one for every level of load, between which changes
// take no time.
func cascadia(redeployed bool) tuner {
	return func(r *instrument.Run, p place, q *cascades.Problem, run baseline.Runner) (*baseline.Tuned, error) {
		rates, err := instrument.Measured(r, fmt.Sprintf("%s/%v/Cascadia rates", p.f.Name, p.slo), func() ([][]float64, error) {
			return baseline.CascadiaRates(r.Ctx, q)
		})
		if err != nil {
			return nil, err
		}
		c := &baseline.Cascadia{Problem: q, Rates: rates}
		name := "Cascadia"
		// If a device holds all models, there is one deployment.
		if redeployed && q.Kinds[0].Memory > 0 && baseline.MemoryOf(q, 1<<len(q.Models)-1) > q.Kinds[0].Memory {
			c.Redeployed, name = true, "Cascadia re-deployed"
		}
		front, err := instrument.Measured(r, fmt.Sprintf("%s/%s/front", p, name), c.Points)
		if err != nil {
			return nil, err
		}
		return c.Best(front, p.slo, run)
	}
}

// cheapestEnsemble returns the ensemble that needs the fewest devices for an accuracy, over periods and utilisations of its autoscaler,
// which knows the rates to come. It returns nil if none is in time. Without windows, a width of 0, its run is not kept.
func cheapestEnsemble(r *instrument.Run, f *published.Family, target float64, windows baseline.Sliding) (*baseline.Ensemble, error) {
	p := place{f, 1, f.SLO}
	return instrument.Measured(r, fmt.Sprintf("%s/Cocktail+ %g/%v", p, target, windows.Width), func() (*baseline.Ensemble, error) {
		q, err := p.problem()
		if err != nil {
			return nil, err
		}
		var scalers []baseline.Autoscaler
		for _, period := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute} {
			for _, eta := range []float64{.6, .8, .95} {
				scalers = append(scalers, baseline.Autoscaler{Period: period, Load: f.Load, Eta: eta})
			}
		}
		return baseline.Cocktail(r.Ctx, q, f.Rates, f.Rates.Even, scalers, target-tolerance, 1, f.SLO, windows)
	})
}
