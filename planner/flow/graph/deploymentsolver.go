package graph

import (
	"context"
	"errors"
	"math"

	"inferplan/planner/flow/terms"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// errTooManyDeployments is returned when there are too many deployments to list, or to search within the
// allowed steps.
var errTooManyDeployments = errors.New("too many covers")

// maxSearchSteps limits one search over deployments.
const maxSearchSteps = 6_000_000

// Objectives of a program over deployments, and aims of a search among these.
const (
	minimizeShare = true  // the least share of the pools that the rates take. Above 1 the rates are out of reach.
	minimizePrice = false // the least price of the devices
	anyPlan       = true  // the search stops at the first plan
	bestPlan      = false // the search looks for the cheapest plan
)

// deploymentSolver solves a problem by listing its deployments. rounds counts solves of linear programs,
// steps those of searches.
type deploymentSolver struct {
	search        *planSearch
	layout        *moduleLayout
	rounds, steps int64
}

// byDeployments calls solve with a solver that lists the deployments of the problem (modules served by a model on given devices), and
// records its steps and rounds in the result. If the problem is too large for that, it returns errTooManyDeployments, and the
// mixed-integer program has to solve it.
func (s *planSearch) byDeployments(solve func(l *deploymentSolver) (*solveResult, error)) (*solveResult, error) {
	l := &deploymentSolver{search: s, layout: s.problem.moduleLayout()}
	if l.layout == nil {
		return nil, errTooManyDeployments
	}
	result, err := solve(l)
	if result != nil {
		result.nodes, result.iterations = l.steps, l.rounds
	}
	return result, err
}

// solveCoverProgram lists the deployments that carry the rates at a factor (common to all rates), and solves the linear program that
// chooses among them: it returns the program with its lower bound and the deployments' reduced costs. minimizeShare says that the share
// of the pools is minimized instead of the price. If the deployments are too many, it returns errTooManyDeployments.
func (l *deploymentSolver) solveCoverProgram(ctx context.Context, factor float64, minimizeShare bool) (*coverProgram, error) {
	if !l.layout.listDeployments(factor) {
		return nil, errTooManyDeployments
	}
	x := l.layout.newCoverProgram(l.search, minimizeShare)
	err := x.solve(ctx)
	l.rounds += x.rounds
	return x, err
}

// searchDeployments looks for a plan and counts the steps.
func (l *deploymentSolver) searchDeployments(x *coverProgram, maxPrice float64, stopAtFirst bool) (*deploymentSearch, bool) {
	d, done := x.searchDeployments(maxPrice, stopAtFirst, maxSearchSteps)
	l.steps += maxSearchSteps - max(0, d.remainingSteps)
	return d, done
}

// rateSearch is a search for the largest rate factor.
type rateSearch struct {
	solver                 *deploymentSolver
	bestSolution           *solution // carries foundFactor
	foundFactor, maxFactor float64   // larger factors than maxFactor are not looked for
	provenBound            float64   // no plan carries a larger factor
}

// throughput finds the largest rate factor (a common factor on the rates of all applications) that the devices
// carry within all deadlines: it narrows the range between a plan's factor and a bound from both sides.
func (l *deploymentSolver) throughput(ctx context.Context) (*solveResult, error) {
	// Find any plan at all: at factor 0, one device per model is enough. It may take all of the pools, a share of 1. If the search
	// has gone through all deployments (done) without a plan, there is none. Otherwise it ran out of steps.
	x, err := l.solveCoverProgram(ctx, 0, minimizeShare)
	if err != nil {
		return nil, err
	}
	d, done := l.searchDeployments(x, 1, anyPlan)
	switch {
	case d.bestSolution == nil && done:
		return nil, terms.ErrNoPlan
	case d.bestSolution == nil:
		return nil, errTooManyDeployments
	}

	// Narrow the range between that plan's factor and the bound, from above, then from below.
	c := &rateSearch{solver: l, bestSolution: d.bestSolution, foundFactor: l.search.problem.rateFactor(d.bestSolution), provenBound: l.search.problem.factorCeiling()}
	if err = c.lowerProvenBound(ctx); err == nil {
		err = c.raiseFoundFactor(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return nil, err
	}

	// Say why the search ended.
	result := &solveResult{solution: c.bestSolution, value: c.foundFactor, bound: max(c.provenBound, c.foundFactor)}
	result.stoppedBy = result.stopReason(l.search.gap)
	if err != nil { // ctx has ended, see above
		result.stoppedBy = milp.StoppedByInterrupt
	}
	return result, nil
}

// factorCeiling returns an upper bound on the rate factor (the common factor of all rates): no module can be
// served faster than by all devices.
func (p *problem) factorCeiling() float64 {
	ceiling := math.Inf(1)
	for a := range p.apps {
		for i := range p.apps[a].modules {
			n := &p.apps[a].modules[i]
			sum := lists.Sum(len(p.pools), func(k int) float64 { return float64(p.pools[k].count) * p.maxDeviceRate(n, k) })
			if n.visitShare > 0 {
				ceiling = min(ceiling, sum/(n.visitShare*p.apps[a].weight))
			}
		}
	}
	return ceiling
}

// lowerProvenBound lowers provenBound, the proven bound on the rate factor: at a factor where the linear program over deployments takes
// more than all devices, no plan exists. It narrows in on the least such factor, to within a small part of the requested gap, and sets
// maxFactor to it.
func (c *rateSearch) lowerProvenBound(ctx context.Context) error {
	tolerance := max(c.solver.search.gap/8, 2e-4)
	// fitFactor is the largest factor known to fit the devices in the linear program. A plan need not exist there.
	fitFactor, f := c.foundFactor, c.provenBound
	// Each factor is closer to the least one that is out of reach. The limit only guards against slow progress.
	for range 20 {
		x, err := c.solver.solveCoverProgram(ctx, f, minimizeShare)
		if err != nil {
			return err
		}

		// x.lowerBound is the least share of the pools that the rates take. Above 1 the factor is out of reach.
		if x.lowerBound > 1+1e-7 {
			c.provenBound = f
		} else {
			fitFactor = max(fitFactor, f)
		}
		if c.provenBound <= fitFactor*(1+tolerance) {
			break
		}

		// Try next where the share of the pools would be 1 if it grew in proportion to the factor, and half a tolerance above, so that
		// the factor is probably out of reach. A step up is at most twentyfold. If that is outside of the range, take the geometric mean.
		f = f / max(x.lowerBound, .05) * (1 + tolerance/2)
		if f <= fitFactor || f >= c.provenBound {
			f = math.Sqrt(fitFactor * c.provenBound)
		}
	}
	c.maxFactor = c.provenBound
	return nil
}

// raiseFoundFactor looks for plans at rate factors (common to all rates) between foundFactor, the best one found, and maxFactor, until the
// gap is small enough. At each factor it lists the deployments anew and searches them. A plan raises foundFactor. A factor without one
// lowers maxFactor.
//
// It also lowers provenBound, above which no plan exists, if the search went through all deployments. A search that runs out of steps
// proves nothing: maxFactor falls below provenBound, and as factors in between then stay open, later searches prove nothing either.
func (c *rateSearch) raiseFoundFactor(ctx context.Context) error {
	relativeStep, anyFound := max(c.solver.search.gap/4, 1e-3), false
	// The range of factors shrinks with each try. The limit only guards against slow progress.
	for range 200 {
		// A factor below leastFactor is not worth a try: from foundFactor to there is less than the gap or, with a gap of 0, rounding.
		leastFactor := max(c.foundFactor/(1-c.solver.search.gap), c.foundFactor*(1+1e-7))
		if leastFactor >= c.maxFactor {
			return nil
		}

		// Choose the next factor: first just below maxFactor, in steps that double. Once a plan was found there, take the geometric
		// mean of the range's ends.
		f := max(leastFactor, c.maxFactor*(1-relativeStep))
		if anyFound {
			f = max(leastFactor, math.Sqrt(c.foundFactor*c.maxFactor))
		}
		x, err := c.solver.solveCoverProgram(ctx, f, minimizeShare)
		if err != nil {
			return err
		}

		// done says that the search went through all deployments.
		d, done := c.solver.searchDeployments(x, 1, anyPlan)
		noneOpenAbove := c.provenBound == c.maxFactor
		switch {
		case d.bestSolution != nil:
			c.bestSolution, c.foundFactor, anyFound = d.bestSolution, max(c.foundFactor, c.solver.search.problem.rateFactor(d.bestSolution)), true
			if c.solver.search.onImproved != nil {
				c.solver.search.onImproved(c.foundFactor, c.provenBound)
			}
		case done && noneOpenAbove:
			c.provenBound, c.maxFactor = f, f
		default:
			c.maxFactor = f
		}
		relativeStep *= 2
	}
	return nil
}

// cheapest finds the plan of the least price that carries the rates and, at that price, the one with the fewest devices, with a bound on
// the price. The price that it allows rises from the bound of the linear program until the search finds a plan. If there is none, it
// returns terms.ErrNoPlan.
func (l *deploymentSolver) cheapest(ctx context.Context) (*solveResult, error) {
	x, err := l.solveCoverProgram(ctx, 1, minimizePrice)
	if err != nil {
		return nil, err
	}

	// The linear program gives the bound. Allow more and more above it until a plan is found. A search that
	// is done (has gone through all deployments) without a plan proves that there is none up to its limit, which is then
	// the bound. Of the plans up to the limit, the search keeps the cheapest, and of these the one with the fewest devices.
	bound, maxPrice := x.lowerBound, x.maxCost()*(1+1e-9) // the price of all devices

	// The first allowance is half of the requested gap, at least .005, of the bound. As the bound may be 0, a small part of the price of
	// all devices is the least that counts.
	firstAllowance := max(l.search.gap, .005) / 2 * max(x.lowerBound, maxPrice*1e-6)
	for priceAllowance := firstAllowance; x.lowerBound <= maxPrice; priceAllowance *= 2 {
		limit := min(maxPrice, x.lowerBound+priceAllowance)
		d, done := l.searchDeployments(x, limit, bestPlan)
		switch {
		case d.bestSolution != nil:
			result := &solveResult{solution: d.bestSolution, value: l.search.problem.price(d.bestSolution), bound: bound, stoppedBy: milp.StoppedByWork}
			if done {
				result.bound, result.stoppedBy = result.value, milp.StoppedByProof
			} else if result.value-result.bound <= l.search.gap*result.value {
				result.stoppedBy = milp.StoppedByGap
			}
			return result, nil
		case !done:
			return nil, errTooManyDeployments
		case limit == maxPrice:
			return nil, terms.ErrNoPlan
		}
		bound = limit
	}
	return nil, terms.ErrNoPlan
}

// raiseRateAtSamePrice replaces, in result, a cheapest plan by the one with the highest rate of those that have no higher price and no
// more devices, as far as a few tries find one. It tries the geometric mean of a range of rate factors, which goes from the plan's own
// factor to twice that at first, and goes on in the part above or below. If anything fails, it leaves the plan.
func (l *deploymentSolver) raiseRateAtSamePrice(ctx context.Context, result *solveResult) {
	carriedFactor, maxPrice := l.search.problem.rateFactor(result.solution), result.value*(1+1e-9)
	for maxFactor := 2 * carriedFactor; maxFactor > carriedFactor*1.01; {
		f := math.Sqrt(carriedFactor * maxFactor)
		x, err := l.solveCoverProgram(ctx, f, minimizePrice)
		if err != nil {
			return
		}
		if x.lowerBound > maxPrice {
			maxFactor = f
			continue
		}
		d, _ := l.searchDeployments(x, maxPrice, bestPlan)
		if d.bestSolution == nil || d.bestPrice > maxPrice || d.bestDevices > result.solution.deviceCount() {
			maxFactor = f
			continue
		}
		// There is such a plan at f. The upper end of the range stays, up to rounding, as f² = carriedFactor · maxFactor.
		maxFactor = f * f / carriedFactor
		result.solution, carriedFactor = d.bestSolution, l.search.problem.rateFactor(d.bestSolution)
	}
}
