package gear

import "context"

// A plan whose ranges take long to try is long in coming. Before that, one cascade for all
// ranges is looked for: what passes at the highest rate does at lower ones. It is the plan
// where the search is interrupted before another one is found.

// longTried is how many requests the ranges of a plan have, tried once each, for an early plan
// to be looked for.
const longTried = 500_000

// earlyLoads are loads of the busiest device at which a cascade passes almost surely, and
// others where it did not.
var earlyLoads = []float64{.75, .5, .25}

// findEarly looks for an early plan on a placement.
func (s *search) findEarly(ctx context.Context, c *laid) error {
	x := c.l.x
	p := x.p
	r := len(p.Edges) - 1
	top := p.Edges[r]
	if s.early != nil || s.o.Any || p.Overall || top*runLength(p.SLO, top).Seconds()*float64(r+1) < longTried {
		return nil
	}
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
			break // with less load
		}
	}
	return nil
}

// oneGear is the plan of a cascade that passed at the highest rate, for all ranges.
func (d *design) oneGear(s *stair, trial Trial) *Outcome {
	p := d.x.p
	out := &Outcome{Problem: p, Configs: d.configs, Chains: d.chains, design: d, Front: 1}
	for r, edge := range p.Edges {
		out.Gears = append(out.Gears, gearOf(p, s, edge, trial))
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return out
}

// improve gives an early plan the gears of ranges that are done of another one on its
// placement. Nil stays nil.
func (out *Outcome) improve(d *design) {
	if out == nil || out.design.layout != d.layout {
		return
	}
	for r := range d.making.Gears {
		out.Accuracy += out.Problem.Weights[r] * (d.making.Gears[r].Accuracy - out.Gears[r].Accuracy)
		out.Gears[r] = d.making.Gears[r]
	}
}

// orEarly is a plan, or the early one where the search was interrupted without one.
func (s *search) orEarly(ctx context.Context, out *Outcome) *Outcome {
	if out == nil && ctx.Err() != nil && s.early != nil {
		return s.early
	}
	return out
}
