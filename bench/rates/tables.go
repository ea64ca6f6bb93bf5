package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferplan/bench/drawn"
	"inferplan/bench/held"
	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// tester solves problems and simulates the plans.
type tester struct {
	held.Tester
	first, last uint64   // drawn problems
	kinds       []string // of problems
	explicit    bool     // compare with explicit flags, too
}

// draws draw the problem of a number, by kind.
var draws = map[string]func(number uint64) drawn.Problem{"pools": drawn.Pools, "applications": drawn.Applications, "cascades": drawn.Cascades, "queues": drawn.Queues}

// planned is a plan with what it states and what it holds.
type planned struct {
	flags   string
	stated  float64
	missed  float64 // most by which a model misses its share of requests in time at the stated rates
	holds   float64 // rps per weight; 0 if the objective is no rate
	bound   float64
	seconds float64 // of CPU for the solve
}

// plan solves a problem and simulates the plan; it returns nil if there is no plan.
func (h *tester) plan(ctx context.Context, p *drawn.Problem, flags string, values map[string]any) (*planned, error) {
	before := cputime.Used()
	res, err := planner.Solve(ctx, p.Inputs, planner.Options{Values: values, SkipNearest: true}, highs.Solver{}, nil)
	if _, infeasible := errors.AsType[*planner.InfeasibleError](err); infeasible {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", p.Name, flags, err)
	}
	out := &planned{flags: flags, seconds: (cputime.Used() - before).Seconds(), stated: res.Plan.Objective.Value}
	if b := res.Plan.Objective.Bound; b != nil {
		out.bound = *b
	}
	if out.missed, err = h.MissedAsStated(ctx, res.Plan); err != nil || !p.Rated {
		return out, err
	}
	out.holds, err = h.Rate(ctx, res.Plan)
	return out, err
}

// compare plans a problem with the default flags and with every explicit choice.
func (h *tester) compare(ctx context.Context, p *drawn.Problem) (byDefault, best *planned, err error) {
	if byDefault, err = h.plan(ctx, p, "default", p.Values); err != nil || byDefault == nil {
		return nil, nil, err
	}
	best = byDefault
	for _, values := range p.Explicit {
		other, err := h.plan(ctx, p, fmt.Sprint(values), values)
		if err != nil {
			return nil, nil, err
		}
		if other != nil && other.holds > best.holds {
			best = other
		}
	}
	return byDefault, best, nil
}

// bounds that the figures ask for.
const (
	mostMissed = 0.005 // by which a plan may miss the attainment asked
	mostAbove  = 0.02  // by which explicit flags may hold more
)

// rates measures drawn problems.
func (h *tester) rates(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"problem", "stated", "misses at it", "holds rps", "bound", "best explicit flags hold", "flags", "CPU s"}
	var missed, above []float64
	refuted, plans := 0, 0
	var problems []drawn.Problem
	for _, kind := range h.kinds {
		for number := h.first; number <= h.last; number++ {
			problems = append(problems, draws[kind](number))
		}
	}
	for i := range problems {
		p := problems[i]
		byDefault, err := h.plan(r.Ctx, &p, "default", p.Values)
		best := byDefault
		if err == nil && h.explicit && byDefault != nil && p.Rated {
			byDefault, best, err = h.compare(r.Ctx, &p)
		}
		if err != nil {
			return err
		}
		if byDefault == nil {
			t.Add(p.Name, "no plan", "", "", "", "", "", "")
			continue
		}
		plans++
		missed = append(missed, byDefault.missed)
		if !p.Rated {
			t.Add(p.Name, number(byDefault.stated), fmt.Sprintf("%.4f", byDefault.missed), "", number(byDefault.bound), "", "", fmt.Sprintf("%.1f", byDefault.seconds))
			continue
		}
		above = append(above, best.holds/byDefault.holds-1)
		if best.holds > byDefault.bound*(1+1e-9) {
			refuted++
		}
		t.Add(p.Name, number(byDefault.stated), fmt.Sprintf("%.4f", byDefault.missed), number(byDefault.holds), number(byDefault.bound),
			fmt.Sprintf("%+.1f %%", 100*(best.holds/byDefault.holds-1)), best.flags, fmt.Sprintf("%.1f", byDefault.seconds))
	}
	if plans == 0 {
		return errors.New("no problem has a plan")
	}
	source := fmt.Sprintf("drawn %s %d to %d, of which %d have a plan", strings.Join(h.kinds, ", "), h.first, h.last, plans)
	r.AtMost("default plans: most by which a model or class misses its share of requests in time at the stated rates, fresh seeds", source, mostMissed, "", slices.Max(missed))
	r.AtMost("default plans: plans that hold more than the bound", source, 0, "", float64(refuted))
	if h.explicit {
		r.AtMost("explicit flags: most by which they hold more than the default", source, mostAbove, "", slices.Max(above))
	}
	return nil
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }
