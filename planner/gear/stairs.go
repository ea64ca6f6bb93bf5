package gear

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// mostFilled is the part of the time that a split leaves over in which another one
// may work, so as to have samples in shorter batches.
const mostFilled = .7

// stair is a cascade on a placement: the load of the busiest device, and of the busiest
// device or NIC, per request per second.
type stair struct {
	cascade     *Cascade
	load, taken float64
	shares      [][]float64
}

// design is a placement that cascades are tried on.
type design struct {
	*layout
	bench  *bench
	ranges []float64 // accuracies that ranges have at most
	making *Outcome  // plan that is being made
}

// plan gives every range the most accurate cascade that passes. A gear that fails at a
// rate fails at a higher one, so that each range starts where the range below ended. What
// one that failed rules out is not tried. It gives up where the
// ranges that are left cannot make a plan that reaches the target and is above an
// accuracy.
func (d *design) plan(ctx context.Context, above float64, o *Options) (*Outcome, error) {
	x, p, at := d.x, d.x.p, 0
	out := &Outcome{Problem: p, Configs: d.configs, Chains: d.chains, design: d}
	d.making = out
	for r, edge := range p.Edges {
		var last *Trial
		var failed []miss
		hopeless := func(i int, taken float64) bool {
			return taken*edge > 1 || slices.ContainsFunc(failed, func(f miss) bool { return f.rulesOut(&x.list[i], taken) })
		}
		for ; ; at++ {
			if at == len(x.order) {
				return nil, d.infeasible(ctx, r, last)
			}
			i := x.order[at]
			if hopeless(i, d.atLeast(i)) {
				continue
			}
			if most := d.reachable(out, r, accuracyOn(p, &x.list[i])); !p.Overall && (p.misses(most) || above > 0 && most <= above) {
				return nil, &Infeasible{Target: p.Target, Best: most} // if Overall the ranges are not done
			}
			s, err := d.stair(ctx, i)
			if err != nil {
				return nil, err
			}
			if hopeless(i, s.taken) {
				continue
			}
			trial, err := d.try(ctx, i, s, edge)
			if err != nil {
				return nil, err
			}
			out.Front++
			if last = &trial; trial.Passed {
				out.Gears = append(out.Gears, gearOf(p, s, edge, trial))
				out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
				break
			}
			failed = append(failed, miss{&x.list[i], s.taken})
		}
		if o.Progress != nil {
			o.Progress(r+1, len(p.Edges))
		}
	}
	if err := d.lighten(ctx, out, above); err != nil {
		return nil, err
	}
	if p.misses(out.Accuracy) && !p.Overall || above > 0 && out.Accuracy <= above && !p.Overall {
		return nil, &Infeasible{Target: p.Target, Best: out.Accuracy}
	}
	out.Runs, d.bench.runs = d.bench.runs, 0
	return out, nil
}

// lighten gives the last range, which also has all rates above it, a cascade that no other
// beats with less load, where the plan loses next to nothing by it: under overload that one
// answers more requests in time.
func (d *design) lighten(ctx context.Context, out *Outcome, above float64) error {
	p := d.x.p
	r := len(p.Edges) - 1
	most := out.Gears[r].Cascade.Correct
	front, err := d.front(ctx, most-int32(math.Ceil(min(1, considerable/p.Weights[r])*float64(p.Planned.N))), most)
	if err != nil {
		return err
	}
	for _, i := range slices.Backward(front) {
		lost := p.Weights[r] * (out.Gears[r].Accuracy - accuracyOn(p, &d.x.list[i]))
		if lost == 0 || lost >= considerable || p.misses(out.Accuracy-lost) || out.Accuracy-lost <= above {
			return nil
		}
		s, err := d.stair(ctx, i)
		if err != nil {
			return err
		}
		if s.taken*p.Edges[r] > 1 {
			continue
		}
		trial, err := d.try(ctx, i, s, p.Edges[r])
		if err != nil {
			return err
		}
		if trial.Passed {
			out.Gears[r] = gearOf(p, s, p.Edges[r], trial)
			out.Accuracy -= lost
			return nil
		}
	}
	return nil
}

// miss is a cascade that failed, with the load of the busiest device.
type miss struct {
	cascade *Cascade
	taken   float64
}

// rulesOut tells whether a cascade is not worth a trial after one that failed: it asks all of
// its models, and each for as many samples or with more load. Other models may be on other
// devices than those where requests are late, whatever the busiest has to do.
func (f miss) rulesOut(c *Cascade, taken float64) bool {
	at, fewer := 0, false
	for k, m := range f.cascade.Models {
		for at < len(c.Models) && c.Models[at] < m {
			at++
		}
		if at == len(c.Models) || c.Models[at] != m {
			return false
		}
		fewer = fewer || c.Reach[at] < f.cascade.Reach[k]
	}
	return !fewer || taken > f.taken*(1+1e-9)
}

// verdict is what trials of a cascade on a placement at a rate said of SLOs. One that holds,
// does so within a longer SLO, one that fails not within a shorter one.
type verdict struct {
	fails, holds time.Duration // 0: none did
	stair        stair         // that holds
	held, failed Trial
}

// try tries a cascade at a rate, unless trials within another SLO have said enough. It gives
// the stair the split that holds.
func (d *design) try(ctx context.Context, i int, s *stair, rate float64) (t Trial, err error) {
	k, slo := d.triedBefore(i, rate), d.x.p.SLO
	switch {
	case k.holds > 0 && slo >= k.holds:
		*s = k.stair
		return k.held, nil
	case slo <= k.fails:
		return k.failed, nil
	}
	if t, err = d.trySplits(ctx, i, s, rate); err != nil {
		return t, err
	}
	if t.Passed {
		k.holds, k.stair, k.held = slo, *s, t
	} else {
		k.fails, k.failed = slo, t
	}
	return t, nil
}

// triedBefore returns what trials have shown of a cascade at a rate, on devices that hold the same
// models and stages, with the same largest batches.
func (d *design) triedBefore(i int, rate float64) *verdict {
	if d.x.known == nil {
		return &verdict{}
	}
	c, known := &d.x.list[i], d.x.known.trials
	key := fmt.Sprint(d.configs, c.Models, c.Levels, rate)
	for i := range d.chains {
		key += " " + d.chains[i].key()
	}
	for _, batch := range d.x.batch {
		for _, m := range c.Models {
			key += fmt.Sprint(" ", batch[m])
		}
	}
	if known[key] == nil {
		known[key] = &verdict{}
	}
	return known[key]
}

// trySplits tries a cascade at a rate with one split after another until one passes: the one
// with the least load; the one with short batches; and, below the highest
// rate, that in which every model is on few devices.
func (d *design) trySplits(ctx context.Context, i int, s *stair, rate float64) (Trial, error) {
	t, err := d.bench.try(ctx, s, rate)
	if t.Passed || err != nil {
		return t, err
	}
	short, err := d.shortBatches(ctx, i, s.taken, 1/rate)
	if err != nil {
		return t, err
	}
	if short != nil && !slices.EqualFunc(short.shares, s.shares, slices.Equal[[]float64]) {
		if t, err = d.bench.try(ctx, short, rate); t.Passed || err != nil {
			*s = *short
			return t, err
		}
	}
	few := *s
	if edges := d.x.p.Edges; rate >= edges[len(edges)-1] {
		return t, nil // that gear also has all rates above, and under overload the even split does more
	}
	if few.shares = d.onFewDevices(i, s.shares); few.shares == nil {
		return t, nil
	}
	got, err := d.bench.try(ctx, &few, rate)
	if got.Passed {
		*s = few
		return got, err
	}
	return t, err
}

// reachable is what a plan comes to at most whose next range is not above an accuracy:
// ranges above it are not more accurate either.
func (d *design) reachable(out *Outcome, r int, accuracy float64) float64 {
	most := out.Accuracy
	for ; r < len(d.x.p.Edges); r++ {
		if r < len(d.ranges) && d.ranges[r] < accuracy {
			accuracy = d.ranges[r]
		}
		most += d.x.p.Weights[r] * accuracy
	}
	return most
}

// gearOf is a stair as the gear of a range.
func gearOf(p *Problem, s *stair, edge float64, t Trial) Planned {
	return Planned{Cascade: *s.cascade, MinQueue: 1, Shares: s.shares, Load: s.load * edge, Trial: t, Accuracy: accuracyOn(p, s.cascade)}
}

// accuracyOn is the share of the samples planned on that a cascade answers right.
func accuracyOn(p *Problem, c *Cascade) float64 { return float64(c.Correct) / float64(p.Planned.N) }

// design is the layout to try cascades on.
func (l *layout) design(o *Options, ranges []float64) *design {
	return &design{layout: l, bench: newBench(l.x.p, l.configs, l.chains, o.Seed), ranges: ranges}
}

// stair is a cascade with the split that loads the busiest device least.
func (l *layout) stair(ctx context.Context, i int) (*stair, error) {
	s, err := l.split(ctx, i)
	if err != nil || s.shares == nil {
		return &stair{load: math.Inf(1), taken: math.Inf(1)}, err
	}
	return &stair{&l.x.list[i], s.load, s.taken, l.shares(s)}, nil
}

// shortBatches splits a cascade so that samples are in short batches, in the time that the split
// before leaves; nil: no split does.
func (l *layout) shortBatches(ctx context.Context, i int, taken, below float64) (*stair, error) {
	s, err := l.splitLoad(ctx, i, taken+mostFilled*(below-taken))
	if err != nil || s.shares == nil || s.taken >= below {
		return nil, err
	}
	return &stair{&l.x.list[i], s.load, s.taken, l.shares(s)}, nil
}

// ladder are the stairs of cascades with more right answers than a number, by rising load
// and accuracy, that devices and NICs have the time for at a rate.
func (l *layout) ladder(ctx context.Context, rate float64, above int32) (list []stair, err error) {
	front, err := l.front(ctx, above, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	for _, i := range front {
		if l.atLeast(i)*rate > 1 {
			break
		}
		s, err := l.stair(ctx, i)
		if err != nil || s.taken*rate > 1 {
			return list, err
		}
		list = append(list, *s)
	}
	return list, nil
}

// front are the cascades with right answers above a number, and up to another, that no other one of these
// beats with less load, by rising load. What programs said of other cascades bounds
// the loads from below; once those that are on the front by these bounds are loads
// themselves, so is the front: whatever a bound leaves out, its load does.
func (l *layout) front(ctx context.Context, above, most int32) ([]int, error) {
	x := l.x
	least := make([]float64, len(x.list))
	for {
		for i := range x.list {
			least[i] = math.Inf(1)
			if correct := x.list[i].Correct; correct <= above || correct > most {
				continue
			}
			least[i] = l.atLeast(i)
			if s, ok := l.loads[i]; ok {
				least[i] = s.taken
			}
		}
		front, news := Pareto(least, x.list), false
		for _, i := range front {
			if _, ok := l.loads[i]; ok {
				continue
			}
			news = true
			if _, err := l.split(ctx, i); err != nil {
				return nil, err
			}
		}
		if !news {
			return front, nil
		}
	}
}

// infeasible returns why a range has no gear, by the lightest of the cascades whose models the placement has.
func (l *layout) infeasible(ctx context.Context, r int, last *Trial) error {
	x, i, n := l.x, l.lightest(), 0
	if i < 0 {
		return &Infeasible{Range: r, Edge: x.p.Edges[r], NoneUsable: true}
	}
	s, err := l.stair(ctx, i)
	if err != nil {
		return err
	}
	inf, top := noGear(x.p, r, &x.list[i], s.taken, last), x.p.Edges[len(x.p.Edges)-1]
	for k := range x.p.Kinds {
		n += x.p.Kinds[k].Devices
	}
	if last == nil {
		inf.Devices = int(math.Ceil(float64(n) * top * s.taken))
	}
	return inf
}

// lightest returns the cascade that takes the least time of devices, among those whose models the placement has;
// if it has those of none, it returns -1.
func (l *layout) lightest() int {
	best, least := -1, math.Inf(1)
	costs := l.priced(slices.Repeat([]float64{1}, len(l.cells)), nil)
	for i := range l.x.list {
		work := 0.0
		for _, m := range l.x.list[i].Models {
			if share := l.x.reach[i][m]; share > 0 {
				work += share * costs[m]
			}
		}
		if work < least {
			best, least = i, work
		}
	}
	return best
}

// noGear says that a range has none: of the lightest cascade, and of the last trial, if
// there was one.
func noGear(p *Problem, r int, c *Cascade, load float64, last *Trial) *Infeasible {
	inf := &Infeasible{Range: r, Edge: p.Edges[r], Model: p.Models[c.Models[0]].Name, MaxQPS: 1 / load}
	if last != nil {
		inf.LatencyMS, inf.Unstable, inf.TooMany, inf.OnHeldOut = max(0, float64(max(last.Latency, last.HeldOut))/1e6), !last.Stable, last.tooMany, last.failsHeldOut
	}
	return inf
}
