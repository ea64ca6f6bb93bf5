package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// simulateLoads finds, in short runs, the load that every model sustains.
func (a *tuning) simulate(ctx context.Context, t *attempt) error {
	test, err := certify.New(t.res.Plan, a.cert)
	if err != nil {
		return err
	}

	// Short runs, started from the loads of the best attempt.
	sc, span := test.Scenario, test.Asked.Duration
	sc.Budget = a.bounds.Search
	sc.Seed = seeded.Seed(test.Asked.Seed, "headroom")
	sc.Duration = min(span, max(span/coarsePart, certify.LeastDuration(t.res.Plan)))
	sc.Warmup = sc.Duration / 10
	var from []float64
	if a.best != nil && len(a.best.loads) > 0 {
		from = a.best.loads
	}

	// Loads far below those of the best attempt are not looked for.
	least := a.reach(t, inReach)
	found, err := sim.FindOwnLoads(ctx, sc, sim.OwnSearch{
		Shares: test.Shares, Runs: (test.Asked.Runs + 1) / 2, Step: certify.Step, From: from, Least: least, Together: takeTurns(t.res.Plan),
		Most: 1 / slices.MinFunc(t.headroom, byUtilisation).Utilisation, // replicas carry no more
	})
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	a.work += found.Events
	t.loads, t.short = found.Loads, least != nil && slices.Max(found.Loads) == 0
	a.judge(t)
	return nil
}

// loadsAtShare returns the loads at which a plan sustains a part of the best rate so far. If there is no best
// attempt, or it is not compared by rate, it returns nil.
func (a *tuning) reach(t *attempt, part float64) (loads []float64) {
	if a.best == nil || !a.grows() || !(a.best.rate > 0) {
		return nil
	}
	for i := range t.res.Plan.Deployment {
		m := t.res.Plan.Promised(i)
		loads = append(loads, part*a.best.rate*m.Weight/m.RPS)
	}
	return loads
}

// scoreAttempt computes what a plan is worth at its loads.
func (a *tuning) judge(t *attempt) {
	t.rate, t.floors = math.Inf(1), true
	gpus, spent := 0.0, 0.0
	for i := range t.loads {
		m := t.res.Plan.Promised(i)
		sustained := t.loads[i] * m.RPS
		t.rate = min(t.rate, sustained/m.Weight)
		t.floors = t.floors && meets(sustained, a.floor(i))
		own := 0.0
		for _, p := range t.res.Plan.Deployment[i].Pipelines {
			for _, s := range p.Stages {
				own += s.GPUs
			}
		}
		gpus, spent = gpus+own, spent+own*m.Weight/max(sustained, 1e-9)
	}
	t.hope = gpus / max(spent, 1e-12)
}

// certifyPlans finds in long runs what the plans sustain that were best in short runs, see nextForLongRuns. The
// best of them promises that. If the plans must carry floors, certifyFloors does so.
func (a *tuning) certify(ctx context.Context) error {
	if len(a.best.loads) == 0 {
		return nil
	}
	if !a.grows() {
		return a.certifyFloors(ctx)
	}
	a.shortRate = a.best.rate
	a.budget = a.work + certifyBudget*int64(a.p.Values.Whole("effort"))

	// Test one candidate after another. Once one is confirmed, the next must sustain more.
	for t := rival(a); t != nil; t = rival(a) {
		var threshold []float64
		if a.proven != nil {
			a.best = a.proven
			threshold = a.reach(t, 1)
		}
		err := a.prove(ctx, t, threshold)
		if certify.OverBudget(err) && a.proven == nil {
			return a.unconfirmed(t, err)
		}
		if certify.OverBudget(err) {
			break
		}
		if err != nil {
			return err
		}
		if a.proven == nil || !t.short && a.compare(t, a.proven) > 0 {
			a.proven = t
		}
	}
	a.best = a.proven
	return nil
}

// promiseUnconfirmed makes a plan that no test confirms promise what short runs showed. The plan states err as
// the reason.
func (a *tuning) unconfirmed(t *attempt, err error) error {
	if slices.Min(t.loads) < certify.Step {
		return unmet(a)
	}
	a.overBudget = err
	promise(t.res, t.loads)
	return certify.Unconfirmed(t.res.Plan, err)
}

// nextForLongRuns returns the attempt that long runs test next. Of those not tested, it is the one of the
// highest sustained rate, if that is more than long runs confirmed of any, or if it is the best attempt with one
// margin for all and was close to the best. If there is none, or the work is done, it returns nil.
func rival(a *tuning) (most *attempt) {
	if a.proven == nil {
		return a.best
	}
	plain := uniform(a)
	for _, t := range a.all {
		near := t == plain && t.rate > a.shortRate*(1-close) || t.rate > a.proven.rate*(1+worthwhile) && a.work < a.budget
		if !t.looked && !t.repeats && !t.short && near && (most == nil || t.rate > most.rate) {
			most = t
		}
	}
	return most
}

// bestUniform returns the attempt that sustained most in short runs of those with one margin for all models, or
// with what the running plan keeps back. If there is none, it returns nil.
func uniform(a *tuning) (best *attempt) {
	for i, t := range a.all {
		alone := func(h formats.Headroom) bool { return slices.Equal(t.headroom, a.same(h.Margin, t.shape).headroom) }
		if i > 0 && !slices.ContainsFunc(t.headroom, alone) {
			continue
		}
		if !t.short && (best == nil || a.compare(t, best) > 0) {
			best = t
		}
	}
	return best
}

// certifyFloors tests whether the best plan carries the floors. As long as it does not, the models that fall
// short promise less of what their replicas carry, and another plan is made.
func (a *tuning) certifyFloors(ctx context.Context) error {
	for range floorTries {
		t := a.best

		// Test an attempt that carried the floors in short runs.
		if t.floors {
			test, err := certify.New(t.res.Plan, a.cert)
			if err != nil {
				return err
			}
			test.Scenario.Budget = a.bounds.Tests
			parts := make([]float64, len(t.loads))
			for i := range parts {
				parts[i] = a.floor(i) / t.res.Plan.Promised(i).RPS
			}
			shown, short, err := test.Confirm(ctx, parts)
			if err != nil {
				return certify.Unconfirmed(t.res.Plan, err)
			}
			if !slices.Contains(short, true) {
				promise(t.res, parts)
				test.Store(1, shown.Report)
				return test.Strain(ctx)
			}
			for i := range t.loads {
				if short[i] {
					t.loads[i] = certify.Lower(min(t.loads[i], parts[i]))
				}
			}
			t.floors = false
		}

		// Plan again for the loads that the models sustained.
		next, err := a.try(ctx, setting{t.shape, a.balanced(t)})
		if err != nil {
			return err
		}
		if next == nil && a.overBudget != nil {
			return certify.Unconfirmed(t.res.Plan, a.overBudget)
		}
		if next == nil {
			break
		}
		if a.best = next; !next.floors {
			continue
		}
		for _, o := range a.all {
			if o.floors && a.compare(o, a.best) > 0 {
				a.best = o
			}
		}
	}
	return unmet(a)
}

// limitToFrontEnd limits what each model promises to its weight's part of the front end, if the devices carry
// more than the front end takes in.
func shareFrontEnd(res *kind.Result) {
	plan := res.Plan
	if plan.FrontEndLoad() <= 1 {
		return
	}
	most, parts := plan.FrontEndRate(), make([]float64, len(plan.Deployment))
	for i := range parts {
		parts[i] = 1
		if m := plan.Promised(i); m.RPS > 0 {
			parts[i] = min(1, most*m.Weight/m.RPS)
		}
	}
	promise(res, parts)
}

// busyFrontEnd is the load of the front end from which on one model's requests may delay another's.
const shortFrontEnd = .5

// floorTries bounds the plans that are made until one carries the floors.
const floorTries = 12

// unsustainedError returns the error that no plan carries the floors, or any rate. It names the part of the
// floors that the best plan carries.
func unmet(a *tuning) error {
	// The largest part of the floors that some attempt sustained.
	part := 0.0
	for _, t := range a.all {
		least := math.Inf(1)
		for i := range t.loads {
			if floor := a.floor(i); floor > 0 {
				least = min(least, t.loads[i]*t.res.Plan.Promised(i).RPS/floor)
			}
		}
		part = max(part, least)
	}
	if a.grows() {
		return &kind.InfeasibleError{Constraint: "slo", Simulated: true, Reason: fmt.Sprintf(
			"simulation shows no rate at which every model keeps its SLO: the best plan misses it at %s of what its replicas carry, too", kind.Percent(certify.Step))}
	}
	if part >= 1 {
		return &kind.InfeasibleError{Constraint: "min_rps", Simulated: true,
			Reason: "simulation shows no plan that surely keeps the SLOs at the rates asked: they are so short that plans keep them in some runs only"}
	}
	inf := &kind.InfeasibleError{Constraint: "min_rps", OnlyMinLoad: true, Simulated: true,
		Reason: fmt.Sprintf("simulation shows no plan that keeps the SLOs at the rates asked; the best keeps them at %s of these", kind.Percent(part))}
	if part > 0 {
		inf.Nearest.LoadFactor = part
		if load := a.p.Values.Number("min-load"); load > 0 {
			inf.Nearest.MinLoadRPS = kind.RoundedDown(load*part, 4)
		}
	}
	return inf
}

// certifyAttempt tests in long runs, with other random numbers, what a plan was seen to sustain, and makes it
// promise the highest loads that pass. If minLoads is not nil and the plan does not pass there, it is marked as
// out of reach.
func (a *tuning) prove(ctx context.Context, t *attempt, least []float64) error {
	test, err := certify.New(t.res.Plan, a.cert)
	if err != nil {
		return err
	}
	t.looked, test.Scenario.Budget = true, a.bounds.Tests

	// The test starts at the given loads. Without them it starts at those that the plan was seen to sustain, and
	// climbs.
	c := &certify.Climb{From: t.loads, Together: takeTurns(t.res.Plan), Work: a.budget - a.work}
	for i := range t.loads {
		c.Carried = append(c.Carried, 1/t.headroom[i].Utilisation)
	}
	if least != nil {
		c.From, c.Once = least, true
	} else if slices.Min(t.loads) < certify.Step {
		c.From, c.Halve = slices.Repeat([]float64{64 * certify.Step}, len(t.loads)), true
	}
	loads, shown, err := c.Run(ctx, test)
	a.work += c.Events
	switch {
	case err != nil:
		return err
	case loads == nil && least != nil:
		t.short = true
		return nil
	case loads == nil:
		return unmet(a)
	}

	// The plan promises the loads that passed.
	t.loads, t.short = loads, false
	a.judge(t)
	promise(t.res, loads)
	test.Store(1, shown.Report)
	return test.Strain(ctx)
}

// modelsTakeTurns reports whether models of a plan take turns on devices, or at a busy front end.
func takeTurns(plan *formats.Plan) bool {
	return plan.FrontEndLoad() > shortFrontEnd || slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.TimeShared() })
}
