package gear

import (
	"context"
	"math"
	"slices"
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

// design is a placement with the longest batches on it: what cascades are tried on.
type design struct {
	p     *Problem
	out   Outcome // that there is so far: the placement
	list  []Cascade
	order []int // of the list, the most accurate first
	spare []int // the same, for ranges where none of the former passes; none: nothing but those
	bench *bench
	least func(i int) float64 // bound of the load taken
	at    func(ctx context.Context, i int) (*stair, error)
	// other is another split of what takes too long, below a load; nil: there is none.
	other  func(ctx context.Context, i int, taken, below float64) (*stair, error)
	above  func(ctx context.Context, r int, than *Cascade) ([]stair, error)
	fails  func(ctx context.Context, r int, last *Trial) error // says why a range has no gear
	fill   func(ctx context.Context) error                     // finds loads, so that least bounds all of them well; nil: it does
	ranges []float64                                           // accuracies that ranges have at most
}

// plan gives every range the most accurate cascade that passes. A gear that fails at a
// rate fails at a higher one, so that each range starts where the range below ended. What
// one that failed rules out is not tried. It gives up where the
// ranges that are left cannot make a plan that reaches the target and is above an
// accuracy.
func (d *design) plan(ctx context.Context, above float64, o *Options) (*Outcome, error) {
	p, out := d.p, d.out
	out.Problem = p
	order, spare, at := d.order, d.spare, 0
	for r, edge := range p.Edges {
		var last *Trial
		var failed []miss
		hopeless := func(i int, taken float64) bool {
			return taken*edge > 1 || slices.ContainsFunc(failed, func(f miss) bool { return f.rulesOut(&d.list[i], taken) })
		}
		for ; ; at++ {
			if at == len(order) && spare != nil {
				order, spare, at = d.noBetter(spare, &out), nil, 0
			}
			if at == len(order) {
				return nil, d.fails(ctx, r, last)
			}
			i := order[at]
			if hopeless(i, d.least(i)) {
				continue
			}
			if most := d.reachable(&out, r, accuracyOn(p, &d.list[i])); !p.Overall && (p.misses(most) || above > 0 && most <= above) {
				return nil, &Infeasible{Target: p.Target, Best: most} // if Overall the ranges are not done
			}
			s, err := d.at(ctx, i)
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
			failed = append(failed, miss{&d.list[i], s.taken})
		}
		if o.Progress != nil {
			o.Progress(r+1, len(p.Edges))
		}
	}
	if p.misses(out.Accuracy) && !p.Overall || above > 0 && out.Accuracy <= above && !p.Overall {
		return nil, &Infeasible{Target: p.Target, Best: out.Accuracy}
	}
	out.Runs, d.bench.runs = d.bench.runs, 0
	out.stairs = &stairs{bench: d.bench, above: func(ctx context.Context, r int) ([]stair, error) { return d.above(ctx, r, &out.Gears[r].Cascade) }}
	return &out, nil
}

// noBetter are those of cascades, the most accurate first, that are not above the last gear.
func (d *design) noBetter(list []int, out *Outcome) []int {
	for n := len(out.Gears); n > 0 && len(list) > 0 && d.list[list[0]].Correct > out.Gears[n-1].Cascade.Correct; {
		list = list[1:]
	}
	return list
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

// try tries a cascade at a rate: with its split, and with another one if that fails.
func (d *design) try(ctx context.Context, i int, s *stair, rate float64) (Trial, error) {
	t, err := d.bench.try(ctx, s.cascade, 1, s.shares, rate)
	if t.Passed || err != nil || d.other == nil {
		return t, err
	}
	other, err := d.other(ctx, i, s.taken, 1/rate)
	if err != nil || other == nil || slices.EqualFunc(other.shares, s.shares, slices.Equal[[]float64]) {
		return t, err
	}
	t, err = d.bench.try(ctx, s.cascade, 1, other.shares, rate)
	s.load, s.shares = other.load, other.shares
	return t, err
}

// reachable is what a plan comes to at most whose next range is not above an accuracy:
// ranges above it are not more accurate either.
func (d *design) reachable(out *Outcome, r int, accuracy float64) float64 {
	most := out.Accuracy
	for ; r < len(d.p.Edges); r++ {
		if r < len(d.ranges) && d.ranges[r] < accuracy {
			accuracy = d.ranges[r]
		}
		most += d.p.Weights[r] * accuracy
	}
	return most
}

// gearOf is a stair as the gear of a range.
func gearOf(p *Problem, s *stair, edge float64, t Trial) Planned {
	return Planned{Cascade: *s.cascade, MinQueue: 1, Shares: s.shares, Load: s.load * edge, Trial: t, Accuracy: accuracyOn(p, s.cascade)}
}

// accuracyOn is the share of the samples planned on that a cascade answers right.
func accuracyOn(p *Problem, c *Cascade) float64 { return float64(c.Correct) / float64(p.Planned.N) }

// design is the layout to try cascades on. On identical devices loads are known: only what
// no other cascade beats is tried.
func (l *layout) design(o *Options, ranges []float64) *design {
	x := l.x
	d := &design{p: x.p, list: x.list, order: x.order, bench: newBench(x.p, l.configs, l.chains, o.Seed), out: Outcome{Configs: l.configs, Chains: l.chains},
		least: l.atLeast, at: l.stair, fails: l.infeasible, ranges: ranges,
		above: func(ctx context.Context, r int, than *Cascade) ([]stair, error) {
			return l.ladder(ctx, x.p.Edges[r], than.Correct)
		}}
	if l.alike == nil {
		d.other, d.fill = l.shortBatches, func(ctx context.Context) error { _, err := l.front(ctx, -1); return err }
		return d
	}
	l.load = l.alike.loads(x.work)
	d.order, d.spare = Pareto(l.load, x.list), lighter(x.list, l.load, totals(x.work))
	slices.Reverse(d.order)
	return d
}

// stair is a cascade with the split that loads the busiest device least.
func (l *layout) stair(ctx context.Context, i int) (*stair, error) {
	if l.alike != nil {
		shares, _ := l.alike.Split(l.x.work[i])
		return &stair{&l.x.list[i], l.atLeast(i), l.atLeast(i), shares}, nil
	}
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
	front, err := l.front(ctx, above)
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

// front are the cascades with more right answers than a number that no other one
// beats with less load, by rising load. What programs said of other cascades bounds
// the loads from below; once those that are on the front by these bounds are loads
// themselves, so is the front: whatever a bound leaves out, its load does.
func (l *layout) front(ctx context.Context, above int32) ([]int, error) {
	x := l.x
	least := make([]float64, len(x.list))
	for {
		for i := range x.list {
			least[i] = math.Inf(1)
			if s, ok := l.loads[i]; x.list[i].Correct > above && ok {
				least[i] = s.taken
			} else if x.list[i].Correct > above {
				least[i] = l.atLeast(i)
			}
		}
		front, news := Pareto(least, x.list), false
		if l.alike != nil {
			return front, nil // these are the loads
		}
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

// infeasible says why a range has no gear, by the lightest cascade.
func (l *layout) infeasible(ctx context.Context, r int, last *Trial) error {
	x, i, n := l.x, 0, 0
	if l.alike == nil {
		i = x.lightest()
	} else if front := Pareto(l.load, x.list); len(front) > 0 {
		i = front[0]
	} else { // no cascade has its models on the placement
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
	if l.alike != nil {
		inf.Devices = int(math.Ceil(sum(x.work[i]) * top))
	} else if last == nil {
		inf.Devices = int(math.Ceil(float64(n) * top * s.taken))
	}
	return inf
}

// noGear says that a range has none: of the lightest cascade, and of the last trial, if
// there was one.
func noGear(p *Problem, r int, c *Cascade, load float64, last *Trial) *Infeasible {
	inf := &Infeasible{Range: r, Edge: p.Edges[r], Model: p.Models[c.Models[0]].Name, MaxQPS: 1 / load}
	if last != nil {
		inf.LatencyMS, inf.Unstable = max(0, float64(last.Latency)/1e6), !last.Stable
	}
	return inf
}
