package flow

import (
	"context"
	"errors"
	"math"

	"inferplan/solver/milp"
)

// errMany means that there are too many covers to list, or to search.
var errMany = errors.New("too many covers")

// descentSteps limits one descent.
const descentSteps = 6_000_000

// listed solves a problem by its covers.
type listed struct {
	*search
	y             *layout
	rounds, steps int64
}

func (s *search) listed() *listed {
	if y := s.p.layout(); y != nil {
		return &listed{search: s, y: y}
	}
	return nil
}

// bounded is the program of covers at a factor of the rates, solved.
func (l *listed) bounded(ctx context.Context, factor float64, share bool) (*master, error) {
	if !l.y.cover(factor) {
		return nil, errMany
	}
	x := l.y.master(l.search, share)
	err := x.solve(ctx)
	l.rounds += x.rounds
	return x, err
}

func (l *listed) descend(x *master, limit float64, first bool) (*descent, bool) {
	d, done := x.descend(limit, first, descentSteps)
	l.steps += descentSteps - max(0, d.steps)
	return d, done
}

// climb is a search for the largest factor under way.
type climb struct {
	*listed
	best     *picked
	low, top float64 // what was found; above top nothing is looked for
	bound    float64 // proven
}

// throughput finds the largest common factor of the rates.
func (l *listed) throughput(ctx context.Context) (*found, error) {
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
	c := &climb{listed: l, best: d.best, low: l.p.factor(d.best), bound: l.p.ceiling()}
	if err = c.lower(ctx); err == nil {
		err = c.raise(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
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

// ceiling bounds the factor by every module on its own.
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

// lower brings the bound down to where the program of covers has a solution.
func (c *climb) lower(ctx context.Context) error {
	near, lo, f := max(c.gap/8, 2e-4), c.low, c.bound
	for range 20 {
		x, err := c.bounded(ctx, f, true)
		if err != nil {
			return err
		}
		if x.least > 1+1e-7 {
			c.bound = f
		} else {
			lo = max(lo, f)
		}
		if c.bound <= lo*(1+near) {
			break
		}
		if f = f / max(x.least, .05) * (1 + near/2); f <= lo || f >= c.bound {
			f = math.Sqrt(lo * c.bound)
		}
	}
	c.top = c.bound
	return nil
}

// raise looks for plans below the bound until the gap is small enough.
func (c *climb) raise(ctx context.Context) error {
	step, some := max(c.gap/4, 1e-3), false
	for range 200 {
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

// cheapest finds the least price at a factor of the rates, then the fewest devices.
func (l *listed) cheapest(ctx context.Context, factor float64) (*found, error) {
	x, err := l.bounded(ctx, factor, false)
	if err != nil {
		return nil, err
	}
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

// roomier replaces a cheapest plan by the one of no higher price and no more devices
// that carries most, as far as a few tries show it.
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

// counted notes the work in a result.
func (l *listed) counted(out *found) *found {
	if out != nil {
		out.nodes, out.iterations = l.steps, l.rounds
	}
	return out
}
