package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/gear/bounds"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// The devices of the least price. The optimum of the relaxation grows with the number of devices of every kind and
// is concave in it, so its duals at one choice of counts bound it at all others. A small program over the counts
// gets these bounds as rows when they are violated, and ends at the least price at which the relaxation reaches
// the target (Benders decomposition). If the SLO is over all requests, the row says that the pooled devices must
// be worth what the target needs at least.
//
// From that price upwards plans are made for counts by rising price. Counts that nowhere exceed failed ones are
// left out. So the first plan is the cheapest. If many fail, the price rises in steps that double, and is then
// bisected.

// steppedAfter is the number of plans after which the price rises in steps, and maxPlansTried that of all plans.
const (
	steppedAfter  = 24
	maxPlansTried = 36
)

// deviceSearch searches for the cheapest numbers of devices.
type deviceSearch struct {
	search    *planSearch
	prices    []float64                    // by kind
	available []int                        // by kind: number of devices in the cluster
	seeds     [][]int                      // by range: cascades that relaxations used
	cuts      map[string]*bounds.DeviceCut // by counts
	cutOrder  []*bounds.DeviceCut          // in the order in which they were computed

	attempts     []priceAttempt // in order
	plansTried   int            // plans that were simulated
	bestPlan     *trials.Plan   // cheapest plan so far
	failedCounts [][]int        // counts without a plan
	minPrice     float64        // only higher prices are tried
	lastError    error          // why the last counts have no plan
	wholeOnly    bool           // no member runs in stages
}

// planCheapest returns a plan on the devices of least price (or the fewest devices) that reaches the target accuracy
// within the SLO. It plans on numbers of devices by rising price, and skips those that the linear programs rule out. If
// ctx ends, it returns the cheapest plan so far or, if there is none, an early plan (one cascade of little load for all
// ranges). The plan's bound is the least price that could not be ruled out.
func (s *planSearch) planCheapest(ctx context.Context) (*trials.Plan, error) {
	c := &deviceSearch{search: s, cuts: map[string]*bounds.DeviceCut{}, seeds: make([][]int, len(s.problem.RangeEdges))}
	smallest := math.Inf(1) // price of the cheapest device
	for _, kind := range s.problem.Kinds {
		c.prices, c.available = append(c.prices, kind.Price), append(c.available, kind.Devices)
		smallest = min(smallest, kind.Price)
	}
	inputs, err := s.planInputsFor(ctx, s.problem)
	if err != nil || inputs.withStages == nil {
		return nil, err
	}
	c.wholeOnly = len(inputs.chains) == 0

	// All devices together must reach the target. Their cut has the accuracy that the linear programs reach.
	cut, err := c.cutAt(ctx, c.available)
	switch {
	case err != nil:
		return nil, err
	case !cut.ServesAllRanges:
		return s.planMostAccurate(ctx, s.problem) // fails, and names the range
	case !c.reachesTarget(cut):
		return nil, s.problem.TargetError(cut.Value)
	}

	// Search by rising price, with an early plan in case of an interrupt.
	if err := c.findEarlyOnAll(ctx, inputs); err != nil {
		return nil, err
	}
	err = c.planByPrice(ctx, smallest)
	if early := s.orEarlyPlan(ctx, c.bestPlan); c.bestPlan == nil && early != nil {
		early.RemoveIdlePipelines(early.Problem)
		if err := c.keepIfCheaper(ctx, early, c.available); err != nil {
			return nil, err
		}
	}

	// If there is neither an error nor a plan, no counts have a plan, and lastError says why.
	plan, err := trials.PlanOrError(ctx, c.bestPlan, err)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, c.lastError
	}

	// Set the bounds. Trials rule counts out only if the SLO is for every range and no member runs in stages (settleByTrials).
	bound := c.relaxedBound()
	plan.ValueBound, plan.IsProved = min(bound, plan.Value), plan.Value <= bound*(1+1e-9)
	plan.TrialBound = 0
	if !c.search.problem.OverRequests && c.wholeOnly {
		plan.TrialBound = min(c.trialBound(), plan.Value)
	}
	return plan, nil
}

// priceAttempt holds the verdict of planning on some counts of devices.
type priceAttempt struct {
	price      float64
	afterStep  bool // cheaper counts were left out by a step of the price
	verdict    verdict
	isCheapest bool // it gave the cheapest plan so far
}

// verdict says what a search for plans on some counts of devices showed.
type verdict uint8

const (
	notKnown             verdict = iota // the search ended with an error
	foundPlan                           // a plan
	foundNone                           // no plan, though one may exist
	ruledOutByTrials                    // no plan passes trials
	ruledOutByRelaxation                // no plan exists
)

// planByPrice plans on counts of devices by rising price until there is a plan that no cheaper counts can beat. After
// steppedAfter plans, single counts would take too long. So prices are then left out: without a plan the least price to
// try (minPrice) rises by steps that double, up to that of all devices. With a plan it is half way between the price of
// the last failure and that of the cheapest plan. A plan found there is the next upper end, and a failure the next
// lower one. Once there is a plan, it ends after maxPlansTried plans. smallest is the price of the cheapest device, and
// the first step. It sets the best plan and the attempts.
func (c *deviceSearch) planByPrice(ctx context.Context, smallest float64) error {
	for step := smallest; c.bestPlan == nil || c.plansTried < maxPlansTried; {
		// After many plans raise minPrice, the least price of nextCounts. The price of all devices is always tried before the search
		// gives up.
		if c.plansTried >= steppedAfter {
			if c.bestPlan == nil {
				c.minPrice = min(c.lastFailedPrice()+step, c.priceOf(c.available)*(1-1e-6))
				step *= 2
			} else {
				c.minPrice = (c.lastFailedPrice() + c.bestPlan.Value) / 2
			}
		}

		// Plan on the cheapest counts that are left. End if there are none, or they are no cheaper than the best plan.
		counts, err := c.nextCounts(ctx)
		if err != nil {
			return err
		}
		if counts == nil || c.bestPlan != nil && c.priceOf(counts) >= c.bestPlan.Value*(1-1e-9) {
			return nil
		}
		if err := c.planOn(ctx, counts); err != nil {
			return err
		}
	}
	return nil
}

// lastFailedPrice returns the price of the last attempt that gave no new cheapest plan, or 0 if there was none:
// the lower end of the bisection of prices.
func (c *deviceSearch) lastFailedPrice() float64 {
	for _, attempt := range slices.Backward(c.attempts) {
		if !attempt.isCheapest {
			return attempt.price
		}
	}
	return 0
}

// relaxedBound returns a lower bound on the price of all plans: that of the first attempt (counts of devices by rising
// price) that the linear programs do not rule out. If there is none, it returns 0.
func (c *deviceSearch) relaxedBound() float64 {
	for _, attempt := range c.attempts {
		if attempt.verdict != ruledOutByRelaxation && attempt.verdict != notKnown {
			return attempt.price
		}
	}
	return 0
}

// trialBound returns a lower bound on the price of plans that pass trials: the first price, by rising price, that
// neither the linear programs nor trials rule out. If all are ruled out before the price rises in steps, it returns the
// last price before that, because steps leave prices out.
func (c *deviceSearch) trialBound() float64 {
	bound := 0.0
	for _, attempt := range c.attempts {
		if attempt.afterStep {
			break
		}
		bound = attempt.price
		if isRuledOut := attempt.verdict == ruledOutByRelaxation || attempt.verdict == ruledOutByTrials; !isRuledOut {
			break
		}
	}
	return bound
}

// priceOf returns the price of given numbers of devices, by kind.
func (c *deviceSearch) priceOf(counts []int) float64 {
	return lists.Sum(len(counts), func(k int) float64 { return c.prices[k] * float64(counts[k]) })
}

// planOn plans on given numbers of devices, by kind, and adds an attempt that says what that showed: a plan, none
// found, or a proof that there is none, by the linear programs or by trials. Counts without a plan are noted, as they
// and all fewer devices are then left out. A plan becomes the best if it is the cheapest. plansTried counts only plans
// that were simulated, so not counts that the linear programs rule out.
func (c *deviceSearch) planOn(ctx context.Context, counts []int) error {
	// Once the price rises in steps, there is a minPrice, and cheaper counts were left out.
	c.attempts = append(c.attempts, priceAttempt{price: c.priceOf(counts), afterStep: c.minPrice > 0})
	attempt := &c.attempts[len(c.attempts)-1] // nothing below adds attempts
	plan, err := c.search.planMostAccurate(ctx, c.search.problem.WithDevices(counts))
	if infeasible, hasNoPlan := errors.AsType[*cascades.InfeasibleError](err); hasNoPlan {
		c.lastError, c.failedCounts = err, append(c.failedCounts, counts)
		attempt.verdict = foundNone
		switch {
		case infeasible.ByRelaxation:
			attempt.verdict = ruledOutByRelaxation
			return nil
		case infeasible.ByTrials:
			attempt.verdict = ruledOutByTrials
		}
		c.plansTried++
		return nil
	}
	if err != nil {
		return err
	}

	// Keep the plan, if it is cheaper than those before.
	c.plansTried++
	cheapestBefore := c.bestPlan
	if err := c.keepIfCheaper(ctx, plan, counts); err != nil {
		return err
	}
	attempt.verdict, attempt.isCheapest = foundPlan, c.bestPlan != cheapestBefore
	return nil
}

// keepIfCheaper sets a plan's value, the price of its devices, and makes it the best one if it is the cheapest so far.
// counts are the numbers of devices it was planned on. Devices that hold nothing are removed from the plan first, so it
// may be cheaper than that. Then its bounds are computed again, for the devices that remain.
func (c *deviceSearch) keepIfCheaper(ctx context.Context, plan *trials.Plan, counts []int) error {
	if usedCounts := plan.RemoveIdleDevices(); !slices.Equal(usedCounts, counts) {
		p := *plan.Problem
		p.Kinds = c.search.problem.WithDevices(usedCounts).Kinds
		plan.Problem = &p
		boundsCtx := context.WithoutCancel(ctx) // an interrupted search still needs the bounds of its plan
		bounds, total, err := c.search.boundsFor(boundsCtx, &p)
		if err != nil {
			return err
		}
		plan.SetBounds(bounds, total)
		counts = usedCounts
	}
	plan.Value = c.priceOf(counts)
	if c.bestPlan == nil || plan.Value < c.bestPlan.Value {
		c.bestPlan = plan
	}
	return nil
}

// findEarlyOnAll looks for an early plan, one cascade for all ranges of rates, on the best placement of whole models on
// all devices: the search returns it if it is interrupted before it has another. If no whole model is in time, it does
// nothing.
func (c *deviceSearch) findEarlyOnAll(ctx context.Context, inputs *planInputs) error {
	if inputs.wholeModels == nil || inputs.wholeError != nil {
		return nil
	}
	top, _, err := placement.RankPlacements(ctx, inputs.wholeModels, 1)
	if err != nil {
		return err
	}
	return c.search.findEarlyPlan(ctx, top[0])
}

// cutAt returns the cut at some numbers of devices, by kind: the accuracy that the linear programs reach there, and an
// inequality that all counts keep which reach the target. Each is computed once and added to cutOrder, whose rows
// countProgram has.
func (c *deviceSearch) cutAt(ctx context.Context, counts []int) (*bounds.DeviceCut, error) {
	key := fmt.Sprint(counts)
	if cut := c.cuts[key]; cut != nil {
		return cut, nil
	}
	inputs, err := c.search.planInputsFor(ctx, c.search.problem.WithDevices(counts))
	if err != nil {
		return nil, err
	}
	space, err := c.search.boundSpace(ctx, inputs.problem, inputs)
	if err != nil {
		return nil, err
	}
	cut, err := c.solveCut(ctx, inputs, space)
	if err == nil {
		c.cuts[key], c.cutOrder = cut, append(c.cutOrder, cut)
	}
	return cut, err
}

// solveCut computes the cut (a linear inequality that holds for all counts of devices which reach the target) at the
// inputs' numbers of devices. space is that of boundSpace. If every range must keep the SLO, the cut is from the
// program of each range, which starts from the cascades of the range's last program (seeds). If the SLO is over all
// requests together, it is from the pooled devices, and its value is the bound over all ranges. That is NaN if some
// range cannot be served.
func (c *deviceSearch) solveCut(ctx context.Context, inputs *planInputs, space *planspace.Space) (*bounds.DeviceCut, error) {
	if !c.search.problem.OverRequests {
		return bounds.CutOfRanges(ctx, space, c.seeds)
	}
	_, total, _, err := c.search.computeBounds(ctx, inputs.problem, inputs)
	if err != nil {
		return nil, err
	}
	pool, err := bounds.PoolDevices(ctx, inputs.problem, inputs.withStages, space)
	if err != nil {
		return nil, err
	}
	cut := pool.DeviceCut(c.available)
	cut.Value, cut.ServesAllRanges = total, !math.IsNaN(total)
	return cut, nil
}

// reachesTarget reports whether the relaxation reaches the target at the counts of a cut.
func (c *deviceSearch) reachesTarget(cut *bounds.DeviceCut) bool {
	return cut.ServesAllRanges && cut.Value >= c.search.problem.TargetAccuracy-cascades.TargetTolerance
}

// countProgram returns the integer program over numbers of devices, a variable for each kind, that minimises their
// price. Its rows rule out counts at which the relaxation (the linear programs of the ranges) misses the target or a
// plan failed. Fewer devices never reach more, so all counts that nowhere exceed such counts are ruled out, too. Where
// the relaxation misses the target, its duals also give a cut, which holds for all counts that reach the target and
// rules out more:
//
//	Σ_k GainPerDevice(k) · count(k) ≥ RequiredGain
func (c *deviceSearch) countProgram() (program *milp.Model, countVars []milp.Var) {
	program = milp.New("devices")
	var priceTerms, countTerms []milp.Term
	for k := range c.available {
		countVars = append(countVars, program.AddInt("", 0, float64(c.available[k]), c.prices[k]))
		priceTerms, countTerms = append(priceTerms, milp.Term{Var: countVars[k], Coef: c.prices[k]}), append(countTerms, milp.Term{Var: countVars[k], Coef: 1})
	}
	// At least one device, and at least the price that the search has risen to.
	program.AddGE("", 1, countTerms...)
	if c.minPrice > 0 {
		program.AddGE("", c.minPrice*(1+1e-9), priceTerms...)
	}

	// Counts without a plan: of some kind there must be more.
	for _, counts := range c.failedCounts {
		c.addExceeding(program, countVars, counts)
	}

	// Cuts, and the counts at which they were computed, if the relaxation misses the target there. The shortfall is by how much
	// these counts miss RequiredGain. Dividing by it keeps coefficients near 1.
	for _, cut := range c.cutOrder {
		if c.reachesTarget(cut) {
			continue
		}
		if shortfall := cut.Shortfall(); shortfall > 0 {
			terms := lists.Map(len(countVars), func(k int) milp.Term { return milp.Term{Var: countVars[k], Coef: cut.GainPerDevice[k] / shortfall} })
			program.AddGE("", cut.RequiredGain/shortfall, terms...)
		}
		c.addExceeding(program, countVars, cut.Devices)
	}
	return program, countVars
}

// addExceeding adds rows by which at least one kind of devices must have more devices than the given counts, because
// there is no plan on these counts or fewer. Each kind that has more devices gets a 0-1 variable z. If z is 1, the
// count of the kind must exceed the given one: (given + 1) · z ≤ count. At least one z must be 1.
func (c *deviceSearch) addExceeding(program *milp.Model, countVars []milp.Var, counts []int) {
	var exceeding []milp.Term
	for k := range countVars {
		if counts[k] < c.available[k] {
			z := program.AddBool("", 0)
			exceeding = append(exceeding, milp.Term{Var: z, Coef: 1})
			program.AddLE("", 0, milp.Term{Var: z, Coef: float64(counts[k] + 1)}, milp.Term{Var: countVars[k], Coef: -1})
		}
	}
	program.AddGE("", 1, exceeding...)
}

// nextCounts returns the counts of devices, by kind, of least price that were not tried and at which the relaxation
// (the linear programs of the ranges) reaches the target. For other counts cutAt adds a cut to cutOrder, which rules
// them and more out, and countProgram is solved again with it. If there are no counts left, it returns nil.
func (c *deviceSearch) nextCounts(ctx context.Context) ([]int, error) {
	for {
		program, countVars := c.countProgram()
		sol, err := planspace.SolveProgram(ctx, c.search.solver, program, milp.Options{})
		if err != nil {
			return nil, fmt.Errorf("choosing devices: %w", err)
		}
		if sol.X == nil {
			return nil, nil
		}
		cheapest := lists.Filled(len(countVars), func(k int) int { return int(math.Round(sol.X[countVars[k]])) })
		cut, err := c.cutAt(ctx, cheapest)
		if err != nil || c.reachesTarget(cut) {
			return cheapest, err
		}
	}
}
