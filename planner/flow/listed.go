package flow

import (
	"context"
	"errors"
	"math"

	"inferplan/solver/milp"
)

// errTooManyDeployments is returned when there are too many deployments to list, or to search within the
// allowed steps.
var errMany = errors.New("too many covers")

// maxSearchSteps limits one search over deployments.
const descentSteps = 6_000_000

// deploymentSolver solves a problem by listing its deployments. rounds counts solves of linear programs,
// steps those of searches.
type listed struct {
	*search
	y             *layout
	rounds, steps int64
}

// newDeploymentSolver returns a solver for the problem of s. If the problem is too large for it, it returns
// nil.
func (s *search) listed() *listed {
	if y := s.p.layout(); y != nil {
		return &listed{search: s, y: y}
	}
	return nil
}

// solveCoverProgram lists the deployments at a rate factor and solves the linear program over them.
func (l *listed) bounded(ctx context.Context, factor float64, share bool) (*master, error) {
	if !l.y.cover(factor) {
		return nil, errMany
	}
	x := l.y.master(l.search, share)
	err := x.solve(ctx)
	l.rounds += x.rounds
	return x, err
}

// searchDeployments looks for a plan and counts the steps.
func (l *listed) descend(x *master, limit float64, first bool) (*descent, bool) {
	d, done := x.descend(limit, first, descentSteps)
	l.steps += descentSteps - max(0, d.steps)
	return d, done
}

// rateSearch is a search for the largest rate factor.
type climb struct {
	*listed
	best     *picked // carries foundFactor
	low, top float64 // larger factors than maxFactor are not looked for
	bound    float64 // no plan carries a larger factor
}

// throughput finds the largest rate factor.
func (l *listed) throughput(ctx context.Context) (*found, error) {
	// Find any plan at all: at factor 0, one device per model is enough.
	x, err := l.bounded(ctx, 0, true)
	if err != nil {
		return nil, err
	}
	d, done := l.descend(x, 1, true)
	switch {
	case d.best == nil && done:
		return nil, errNone
	case d.best == nil:
		return nil, errMany
	}

	// Narrow the range between that plan's factor and the bound, from above, then from below.
	c := &climb{listed: l, best: d.best, low: l.p.factor(d.best), bound: l.p.ceiling()}
	if err = c.lower(ctx); err == nil {
		err = c.raise(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return nil, err
	}

	// Say why the search ended.
	c.bound = max(c.bound, c.low)
	out := &found{picked: c.best, value: c.low, bound: c.bound, stopped: milp.StoppedByWork}
	switch gap := (c.bound - c.low) / c.bound; {
	case err != nil:
		out.stopped = milp.StoppedByInterrupt
	case gap <= 1e-6:
		out.stopped = milp.StoppedByProof
	case gap <= l.gap:
		out.stopped = milp.StoppedByGap
	}
	return out, nil
}

// factorCeiling returns an upper bound of the rate factor: no module can be served faster than by all
// devices.
func (p *problem) ceiling() float64 {
	top := math.Inf(1)
	for a := range p.apps {
		for i := range p.apps[a].nodes {
			n, sum := &p.apps[a].nodes[i], 0.0
			for k := range p.pools {
				sum += float64(p.pools[k].count) * p.fastest(n, k)
			}
			if n.chance > 0 {
				top = min(top, sum/(n.chance*p.apps[a].weight))
			}
		}
	}
	return top
}

// lowerProvenBound lowers the proven bound until the linear program over deployments is feasible there.
func (c *climb) lower(ctx context.Context) error {
	near, lo, f := max(c.gap/8, 2e-4), c.low, c.bound
	for range 20 {
		x, err := c.bounded(ctx, f, true)
		if err != nil {
			return err
		}

		// If the program takes more than all pools, the factor is out of reach.
		if x.least > 1+1e-7 {
			c.bound = f
		} else {
			lo = max(lo, f)
		}
		if c.bound <= lo*(1+near) {
			break
		}

		// Try next where the share of the pools would be 1 if it grew in proportion to the factor. If that
		// is outside of the range, take the geometric mean.
		if f = f / max(x.least, .05) * (1 + near/2); f <= lo || f >= c.bound {
			f = math.Sqrt(lo * c.bound)
		}
	}
	c.top = c.bound
	return nil
}

// raiseFoundFactor looks for plans between the found factor and maxFactor until the gap is small enough.
func (c *climb) raise(ctx context.Context) error {
	step, some := max(c.gap/4, 1e-3), false
	for range 200 {
		// Choose the next factor: first just below maxFactor, in growing steps; once a plan was found
		// there, halve the range.
		next := max(c.low/(1-c.gap), c.low*(1+1e-7))
		if next >= c.top {
			return nil
		}
		f := max(next, c.top*(1-step))
		if some {
			f = max(next, math.Sqrt(c.low*c.top))
		}
		x, err := c.bounded(ctx, f, true)
		if err != nil {
			return err
		}

		// Found: the factor rises. Proven that there is none: the bound falls, if nothing above was left
		// open. Else only maxFactor falls.
		d, done := c.descend(x, 1, true)
		switch {
		case d.best != nil:
			c.best, c.low, some = d.best, max(c.low, c.p.factor(d.best)), true
			if c.improved != nil {
				c.improved(c.low, c.bound)
			}
		case done && c.bound == c.top:
			c.bound, c.top = f, f
		default:
			c.top = f
		}
		step *= 2
	}
	return nil
}

// cheapest finds the least price at a rate factor and, at that price, the fewest devices.
func (l *listed) cheapest(ctx context.Context, factor float64) (*found, error) {
	x, err := l.bounded(ctx, factor, false)
	if err != nil {
		return nil, err
	}

	// The linear program gives the bound. Allow more and more above it until a plan is found. A search that
	// is done without a plan proves that there is none up to its limit, which is then the bound.
	bound, most := x.least, x.most()*(1+1e-9)
	for above := max(l.gap, .005) / 2 * max(x.least, most*1e-6); x.least <= most; above *= 2 {
		limit := min(most, x.least+above)
		d, done := l.descend(x, limit, false)
		switch {
		case d.best != nil:
			out := &found{picked: d.best, value: l.p.price(d.best), bound: bound, stopped: milp.StoppedByWork}
			if done {
				out.bound, out.stopped = out.value, milp.StoppedByProof
			} else if out.value-out.bound <= l.gap*out.value {
				out.stopped = milp.StoppedByGap
			}
			return out, nil
		case !done:
			return nil, errMany
		case limit == most:
			return nil, errNone
		}
		bound = limit
	}
	return nil, errNone
}

// raiseRateAtSamePrice replaces a cheapest plan by the one with the highest rate of those that have no
// higher price and no more devices, as far as a few tries find one. It halves the range of factors up to
// twice the plan's own.
func (l *listed) roomier(ctx context.Context, out *found) {
	low := l.p.factor(out.picked)
	for top := 2 * low; top > low*1.01; {
		f := math.Sqrt(low * top)
		x, err := l.bounded(ctx, f, false)
		if err != nil {
			return
		}
		top = f
		if x.least > out.value*(1+1e-9) {
			continue
		}
		d, _ := l.descend(x, out.value*(1+1e-9), false)
		if d.best != nil && d.value <= out.value*(1+1e-9) && d.devices <= out.used() {
			out.picked, low, top = d.best, l.p.factor(d.best), f*f/low
		}
	}
}

// recordEffort writes the steps and rounds of the solver into a result.
func (l *listed) counted(out *found) *found {
	if out != nil {
		out.nodes, out.iterations = l.steps, l.rounds
	}
	return out
}
