package gear

import "context"

// A search whose trials take long has no plan for a long time. So it first looks for one cascade for all ranges:
// what passes at the highest rate also passes at lower ones. This early plan is returned if the search is
// interrupted before it has another.

// minEarlyRequests is the number of simulated requests, with one trial per range, from which on an early plan is
// made.
const longTried = 500_000

// earlyLoads are the loads of the busiest device that are tried: one at which a cascade almost surely passes, and
// lower ones in case it does not.
var earlyLoads = []float64{.75, .5, .25}

// findEarlyPlan looks for an early plan on a placement.
func (s *search) findEarly(ctx context.Context, c *laid) error {
	x := c.l.x
	p := x.p
	r := len(p.Edges) - 1
	top := p.Edges[r]
	if s.early != nil || s.o.Any || p.Overall || top*runLength(p.SLO, top).Seconds()*float64(r+1) < longTried {
		return nil
	}

	// For each load try the most accurate cascade that stays below it.
	d := c.l.design(s.o, nil)
	for _, load := range earlyLoads {
		for _, i := range x.order {
			if p.misses(accuracyOn(p, &x.list[i])) {
				break
			}
			if d.atLeast(i)*top > load {
				continue
			}
			st, err := d.stair(ctx, i)
			if err != nil {
				return err
			}
			if st.taken*top > load {
				continue
			}
			trial, err := d.try(ctx, i, st, top)
			if err != nil {
				return err
			}
			if trial.Passed {
				s.early = d.oneGear(st, trial)
				return nil
			}
			break // go on with less load
		}
	}
	return nil
}

// singleCascadePlan returns the plan in which a cascade that passed at the highest rate serves all ranges.
func (d *design) oneGear(s *stair, trial Trial) *Outcome {
	p := d.x.p
	out := &Outcome{Problem: p, Configs: d.configs, Chains: d.chains, design: d, Front: 1}
	for r, edge := range p.Edges {
		out.Gears = append(out.Gears, gearOf(p, s, edge, trial))
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return out
}

// improveFrom gives an early plan the gears of the ranges that are done in an interrupted plan on the same
// placement. The receiver may be nil.
func (out *Outcome) improve(d *design) {
	if out == nil || out.design.layout != d.layout {
		return
	}
	for r := range d.making.Gears {
		out.Accuracy += out.Problem.Weights[r] * (d.making.Gears[r].Accuracy - out.Gears[r].Accuracy)
		out.Gears[r] = d.making.Gears[r]
	}
}

// orEarlyPlan returns a plan, or the early plan if the search was interrupted without one.
func (s *search) orEarly(ctx context.Context, out *Outcome) *Outcome {
	if out == nil && ctx.Err() != nil && s.early != nil {
		return s.early
	}
	return out
}
