package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

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

// deviceCut bounds the relaxation from above, by numbers of devices:
//
//	value(n) ≤ value + Σ_k gainPerDevice(k) · (n(k) - devices(k))
type deviceCut struct {
	devices         []int     // by kind: counts at which it was computed
	value           float64   // of the relaxation at these counts; if a range is not served, minus the unserved share
	gainPerDevice   []float64 // by kind: value of one more device at most
	requiredGain    float64   // the target is reached only if Σ_k gainPerDevice(k) · n(k) is at least this
	servesAllRanges bool      // whether the relaxation serves all ranges
	slack           float64   // by which the value may be too low, because one NIC serves several devices
}

// shortfall returns by how much the counts of devices, at which the cut was computed, miss the requiredGain of
// counts that reach the target. A positive value means that these counts are ruled out.
func (t *deviceCut) shortfall() float64 {
	shortfall := t.requiredGain
	for k, n := range t.devices {
		shortfall -= t.gainPerDevice[k] * float64(n)
	}
	return shortfall
}

// deviceCut solves the linear program of each range at the problem's counts of devices, and returns a cut: a
// linear inequality, from the duals, that all counts of devices keep which reach the target. startCascades, by
// range, are the cascades to start from, and are set to those used.
func (space *planSpace) deviceCut(ctx context.Context, startCascades [][]int) (*deviceCut, error) {
	p := space.problem
	cut := &deviceCut{devices: p.deviceCounts(), gainPerDevice: make([]float64, len(p.Kinds)), servesAllRanges: true}

	// Solve range by range. If one cannot be served, the cut is that of its unserved share.
	for r := range p.RangeEdges {
		g, sol, _, err := space.solveRelaxation(ctx, r, false, startCascades[r])
		if err != nil {
			return nil, err
		}
		startCascades[r] = g.cascadeColumns[0]
		if sol.X[g.unservedVar[0]] > 1e-7 {
			cut = &deviceCut{devices: cut.devices, gainPerDevice: make([]float64, len(p.Kinds))}
			if g, sol, _, err = space.solveRelaxation(ctx, r, true, startCascades[r]); err != nil {
				return nil, err
			}
			cut.addDuals(space, g, sol, 1)
			break
		}
		cut.addDuals(space, g, sol, p.RangeWeights[r]/max(p.RangeWeights[r], 1e-6))
	}

	// What the counts must add up to.
	if cut.requiredGain = -cut.value - cut.slack; cut.servesAllRanges {
		cut.requiredGain += p.TargetAccuracy - targetTolerance
	}
	for k, n := range cut.devices {
		cut.requiredGain += cut.gainPerDevice[k] * float64(n)
	}
	return cut, nil
}

// addDuals adds to the cut what the linear program of one range says: its value, and by its duals the gain of
// one more device of each kind, all times a factor.
func (t *deviceCut) addDuals(space *planSpace, g *mixtureProgram, sol *milp.Solution, factor float64) {
	t.value += factor * sol.Value
	for k, row := range g.deviceRow {
		if row >= 0 {
			t.gainPerDevice[k] += factor * math.Abs(sol.RowDuals[row])
		}
	}

	// A NIC serves the devices of a node, so one more device brings a part of one.
	for k := range space.problem.Kinds {
		for _, inbound := range []bool{false, true} {
			if row, ok := g.nicRow[0][nicDirection{k, inbound}]; ok {
				price, perNode := factor*math.Abs(sol.RowDuals[row]), float64(max(1, space.problem.Blocks.Pools[k].PerNode))
				t.gainPerDevice[k] += price / perNode
				t.slack += price * ((float64(t.devices[k])+perNode-1)/perNode - space.nicCount(k))
			}
		}
	}
}

// deviceCounts returns the number of devices of every kind.
func (p *Problem) deviceCounts() (n []int) {
	for k := range p.Kinds {
		n = append(n, p.Kinds[k].Devices)
	}
	return n
}

// scaleHalvings is the number of halvings in the search for the least worth of pooled devices that reaches a
// target.
const scaleHalvings = 8

// deviceCut returns the cut for an SLO over all requests: a linear inequality that all counts of devices keep
// which reach the target. At the prices of pooled devices they are worth at least requiredGain. available has
// the most devices of each kind.
func (p *pooledDevices) deviceCut(available []int) *deviceCut {
	cut := &deviceCut{devices: p.problem.deviceCounts(), gainPerDevice: slices.Clone(p.devicePrice)}
	// A network card serves the devices of a node, so a device brings a part of one. A node that is not full
	// has a whole card: slack allows for that.
	for n, price := range p.nicPrice {
		perNode := float64(max(1, p.problem.Blocks.Pools[n.kind].PerNode))
		cut.gainPerDevice[n.kind] += price / perNode
		cut.slack += price * (perNode - 1) / perNode
	}
	low, high := 1.0, 0.0
	for k, n := range available {
		high += cut.gainPerDevice[k] * float64(n)
	}
	if p.boundAtScale(low) >= p.problem.TargetAccuracy-targetTolerance {
		return cut // fewer devices reach the target at these prices, so the cut rules nothing out
	}

	// Bisect the factor on the devices at which the bound reaches the target.
	for range scaleHalvings {
		if middle := (low + high) / 2; p.boundAtScale(middle) >= p.problem.TargetAccuracy-targetTolerance {
			high = middle
		} else {
			low = middle
		}
	}
	cut.requiredGain = low - cut.slack
	return cut
}

// deviceSearch searches for the cheapest numbers of devices.
type deviceSearch struct {
	search    *planSearch
	prices    []float64             // by kind
	available []int                 // by kind: number of devices in the cluster
	seeds     [][]int               // by range: cascades that relaxations used
	cuts      map[string]*deviceCut // by counts
	cutOrder  []*deviceCut          // in the order in which they were computed

	attempts     []priceAttempt // in order
	plansTried   int            // plans that were simulated
	bestPlan     *Outcome       // cheapest plan so far
	failedCounts [][]int        // counts without a plan
	minPrice     float64        // only higher prices are tried
	lastError    error          // why the last counts have no plan
	wholeOnly    bool           // no member runs in stages
}

// planCheapest returns a plan on the devices of least price that reaches the target accuracy within the SLO. It
// plans on numbers of devices by rising price, and skips those that the linear program rules out.
func (s *planSearch) planCheapest(ctx context.Context) (*Outcome, error) {
	c := &deviceSearch{search: s, cuts: map[string]*deviceCut{}, seeds: make([][]int, len(s.problem.RangeEdges))}
	smallest := math.Inf(1)
	for _, kind := range s.problem.Kinds {
		c.prices, c.available = append(c.prices, kind.Price), append(c.available, kind.Devices)
		smallest = min(smallest, kind.Price)
	}
	inputs, err := s.planInputsFor(ctx, s.problem)
	if err != nil || inputs.withStages == nil {
		return nil, err
	}
	c.wholeOnly = len(inputs.chains) == 0

	// All devices together must reach the target.
	if cut, err := c.cutAt(ctx, c.available); err != nil {
		return nil, err
	} else if !cut.servesAllRanges {
		return s.planMostAccurate(ctx, s.problem) // fails, and names the range
	} else if !c.reachesTarget(cut) {
		return nil, s.problem.targetError(cut.value)
	}

	// Search by rising price, with an early plan in case of an interrupt.
	if err := c.findEarlyOnAll(ctx, inputs); err != nil {
		return nil, err
	}
	err = c.planByPrice(ctx, smallest)
	if early := s.orEarlyPlan(ctx, c.bestPlan); c.bestPlan == nil && early != nil {
		early.removeIdlePipelines(early.Problem)
		if err := c.keepIfCheaper(ctx, early, c.available); err != nil {
			return nil, err
		}
	}

	// Set the bounds.
	plan, err := planOrError(ctx, c.bestPlan, err)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, c.lastError
	}
	bound := c.relaxedBound()
	plan.ValueBound, plan.IsProved = min(bound, plan.Value), plan.Value <= bound*(1+1e-9)
	if plan.TrialBound = 0; !c.search.problem.OverRequests && c.wholeOnly {
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

// planByPrice plans on counts of devices by rising price until there is a plan that no cheaper counts can beat.
// After many plans, single counts would take too long: the price then rises in doubling steps or, with a plan,
// is bisected. smallest is the price of the cheapest device, and the first step.
func (c *deviceSearch) planByPrice(ctx context.Context, smallest float64) error {
	for step := smallest; c.bestPlan == nil || c.plansTried < maxPlansTried; {
		if c.plansTried >= steppedAfter {
			if c.minPrice = min(c.lastFailedPrice()+step, c.priceOf(c.available)*(1-1e-6)); c.bestPlan != nil { // the price of all devices is always tried
				c.minPrice = (c.lastFailedPrice() + c.bestPlan.Value) / 2
			}
			step *= 2
		}
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

// relaxedBound returns a lower bound on the price of all plans: the first price tried that the linear program
// does not rule out. If there is none, it returns 0.
func (c *deviceSearch) relaxedBound() float64 {
	for _, attempt := range c.attempts {
		if attempt.verdict != ruledOutByRelaxation && attempt.verdict != notKnown {
			return attempt.price
		}
	}
	return 0
}

// trialBound returns a lower bound on the price of plans that pass trials: the first price that neither the
// linear program nor trials rule out, or the last one before the price rose in steps, which leave prices out.
func (c *deviceSearch) trialBound() float64 {
	bound := 0.0
	for _, attempt := range c.attempts {
		if attempt.afterStep {
			break
		}
		if bound = attempt.price; attempt.verdict != ruledOutByRelaxation && attempt.verdict != ruledOutByTrials {
			break
		}
	}
	return bound
}

// priceOf returns the price of given numbers of devices, by kind.
func (c *deviceSearch) priceOf(counts []int) float64 {
	total := 0.0
	for k := range counts {
		total += c.prices[k] * float64(counts[k])
	}
	return total
}

// planOn plans on given numbers of devices, and adds what that showed to the attempts: a plan, none found, or a
// proof that there is none, by the linear program or by trials.
func (c *deviceSearch) planOn(ctx context.Context, counts []int) error {
	c.attempts = append(c.attempts, priceAttempt{price: c.priceOf(counts), afterStep: c.minPrice > 0})
	attempt := &c.attempts[len(c.attempts)-1]
	plan, err := c.search.planMostAccurate(ctx, c.search.problem.withDevices(counts))
	if infeasible, hasNoPlan := errors.AsType[*InfeasibleError](err); hasNoPlan {
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

// keepIfCheaper keeps a plan if it is the cheapest so far. Devices that hold nothing are removed first, and
// then its bounds are those for the devices that remain. counts has the devices it was planned on.
func (c *deviceSearch) keepIfCheaper(ctx context.Context, plan *Outcome, counts []int) error {
	if usedCounts := plan.removeIdleDevices(); !slices.Equal(usedCounts, counts) {
		p, ctx := *plan.Problem, context.WithoutCancel(ctx)
		p.Kinds = c.search.problem.withDevices(usedCounts).Kinds
		plan.Problem = &p
		inputs, err := c.search.planInputsFor(ctx, &p)
		if err != nil {
			return err
		}
		bounds, total, _, err := c.search.computeBounds(ctx, &p, inputs)
		if err != nil {
			return err
		}
		plan.setBounds(bounds, total)
		counts = usedCounts
	}
	if plan.Value = c.priceOf(counts); c.bestPlan == nil || plan.Value < c.bestPlan.Value {
		c.bestPlan = plan
	}
	return nil
}

// findEarlyOnAll looks for an early plan, one cascade for all ranges, on all devices: the search returns it if
// it is interrupted before it has another.
func (c *deviceSearch) findEarlyOnAll(ctx context.Context, inputs *planInputs) error {
	if inputs.wholeModels == nil || inputs.wholeError != nil {
		return nil
	}
	top, _, err := inputs.wholeModels.rankPlacements(ctx, 1)
	if err != nil {
		return err
	}
	return c.search.findEarlyPlan(ctx, top[0])
}

// cutAt returns the cut at some numbers of devices: what the linear program reaches there, and the inequality
// that counts which reach the target keep. Each is computed once.
func (c *deviceSearch) cutAt(ctx context.Context, counts []int) (*deviceCut, error) {
	key := fmt.Sprint(counts)
	if cut := c.cuts[key]; cut != nil {
		return cut, nil
	}
	inputs, err := c.search.planInputsFor(ctx, c.search.problem.withDevices(counts))
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

// solveCut computes the cut (an inequality on counts of devices) at the inputs' numbers of devices, in the
// space for bounds, by the rule for the scope of the SLO.
func (c *deviceSearch) solveCut(ctx context.Context, inputs *planInputs, space *planSpace) (*deviceCut, error) {
	if !c.search.problem.OverRequests {
		return space.deviceCut(ctx, c.seeds)
	}
	_, total, _, err := c.search.computeBounds(ctx, inputs.problem, inputs)
	if err != nil {
		return nil, err
	}
	pool, err := inputs.problem.poolDevices(ctx, inputs.withStages, space)
	if err != nil {
		return nil, err
	}
	cut := pool.deviceCut(c.available)
	cut.value, cut.servesAllRanges = total, !math.IsNaN(total)
	return cut, nil
}

// reachesTarget reports whether the relaxation reaches the target at the counts of a cut.
func (c *deviceSearch) reachesTarget(cut *deviceCut) bool {
	return cut.servesAllRanges && cut.value >= c.search.problem.TargetAccuracy-targetTolerance
}

// countProgram returns the program over numbers of devices that minimises their price. Its rows rule out counts
// at which the relaxation (the linear programs of the ranges) misses the target or a plan failed. Fewer devices
// never reach more, so all counts that nowhere exceed such counts are ruled out, too.
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

	// Counts without a plan, and cuts.
	for _, counts := range c.failedCounts {
		c.addExceeding(program, countVars, counts)
	}
	for _, cut := range c.cutOrder {
		if c.reachesTarget(cut) {
			continue
		}
		// The cut holds for all counts that reach the target. Dividing by the shortfall keeps coefficients near
		// 1.
		if shortfall := cut.shortfall(); shortfall > 0 {
			var terms []milp.Term
			for k := range countVars {
				terms = append(terms, milp.Term{Var: countVars[k], Coef: cut.gainPerDevice[k] / shortfall})
			}
			program.AddGE("", cut.requiredGain/shortfall, terms...)
		}
		c.addExceeding(program, countVars, cut.devices)
	}
	return program, countVars
}

// addExceeding adds a row by which the count of some kind must exceed the given one: with these counts or fewer
// there is no plan.
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

// nextCounts returns the counts of least price that were not tried and at which the relaxation (the linear
// programs of the ranges) reaches the target. Each count that misses it adds a cut, which rules out more, and
// the program is solved again. If there are none, it returns nil.
func (c *deviceSearch) nextCounts(ctx context.Context) (n []int, err error) {
	for {
		program, n := c.countProgram()
		sol, err := solveProgram(ctx, c.search.solver, program, milp.Options{})
		if err != nil {
			return nil, fmt.Errorf("choosing devices: %w", err)
		}
		if sol.X == nil {
			return nil, nil
		}
		var counts []int
		for k := range n {
			counts = append(counts, int(math.Round(sol.X[n[k]])))
		}
		if cut, err := c.cutAt(ctx, counts); err != nil || c.reachesTarget(cut) {
			return counts, err
		}
	}
}
