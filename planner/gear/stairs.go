package gear

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// maxFilledShare is the part of the remaining time of a device that a split with shorter batches may use.
const mostFilled = .7

// loadedCascade is a cascade on a placement with a split of its work. Loads are in seconds per request.
type stair struct {
	cascade     *Cascade
	load, taken float64     // of the busiest device, and of the busiest device or NIC
	shares      [][]float64 // by model and replica
}

// trialPlacement is a placement on which cascades are tried.
type design struct {
	*layout
	bench  *bench
	ranges []float64 // by range: the accuracy that the fluid model allows
	making *Outcome  // the plan so far, ranges in order
}

// planRanges gives every range the most accurate cascade that passes a trial. A gear that fails at a rate also
// fails at a higher one, so each range starts where the range below ended. Cascades that a failed one rules out
// are not tried. It returns an InfeasibleError as soon as the remaining ranges cannot reach the target and exceed
// minAccuracy.
func (d *design) plan(ctx context.Context, above float64, o *Options) (*Outcome, error) {
	x, p, at := d.x, d.x.p, 0
	out := &Outcome{Problem: p, Configs: d.configs, Chains: d.chains, design: d}
	d.making = out
	for r, edge := range p.Edges {
		// Look for the gear of range r.
		var last *Trial
		var failed []miss
		hopeless := func(i int, taken float64) bool {
			return taken*edge > 1 || slices.ContainsFunc(failed, func(f miss) bool { return f.rulesOut(&x.list[i], taken) })
		}
		for ; ; at++ {
			if at == len(x.order) {
				return nil, d.infeasible(ctx, r, last)
			}

			// Skip the cascade if the bound of its load, or a failed cascade, rules it out.
			i := x.order[at]
			if hopeless(i, d.atLeast(i)) {
				continue
			}

			// Give up if no plan with at most this accuracy is good enough.
			if most := d.reachable(out, r, accuracyOn(p, &x.list[i])); !p.Overall && (p.misses(most) || above > 0 && most <= above) {
				return nil, &Infeasible{Target: p.Target, Best: most} // with OverRequests, late ranges may still be allowed
			}

			// Split its work, and try it.
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

			// Take it if it passes.
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

	// Check the whole plan.
	if err := d.lighten(ctx, out, above); err != nil {
		return nil, err
	}
	if p.misses(out.Accuracy) && !p.Overall || above > 0 && out.Accuracy <= above && !p.Overall {
		return nil, &Infeasible{Target: p.Target, Best: out.Accuracy}
	}
	out.Runs, d.bench.runs = d.bench.runs, 0
	return out, nil
}

// lightenLastRange gives the last range a cascade with less load if the plan loses less than nextPlacementGain by
// it. The last range also serves all rates above it, and under overload a lighter cascade answers more requests in
// time.
func (d *design) lighten(ctx context.Context, out *Outcome, above float64) error {
	p := d.x.p
	r := len(p.Edges) - 1
	most := out.Gears[r].Cascade.Correct
	front, err := d.front(ctx, most-int32(math.Ceil(min(1, considerable/p.Weights[r])*float64(p.Planned.N))), most)
	if err != nil {
		return err
	}

	// Try the cascades of the front, the most accurate first, until one passes or costs too much accuracy.
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

// failedCascade is a cascade that failed its trial, with the load of the busiest device or NIC.
type miss struct {
	cascade *Cascade
	taken   float64
}

// rulesOut reports whether another cascade need not be tried after f failed: it asks all models of f, and either
// each for as many samples or with more load. A cascade of other models may still pass, because it may use other
// devices than those on which requests were late.
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

// trialVerdict is what trials of a cascade, on a placement at a rate, showed for SLOs. A cascade that passes also
// passes with a longer SLO, and one that fails also fails with a shorter one.
type verdict struct {
	fails, holds time.Duration // the longest SLO that failed and the shortest that passed; 0 if none did
	stair        stair         // with the split that passed
	held, failed Trial         // the trials at these SLOs
}

// tryCascade tries a cascade at a rate, unless trials with another SLO have decided already. If it passes, s gets
// the split that passed.
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

// knownVerdict returns the verdict of earlier trials of a cascade at a rate, on devices with the same models,
// stages and largest batches. If there were none, it returns an empty verdict to be filled in.
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

// trySplits tries a cascade at a rate with several splits until one passes: the one of least load, the one with
// short batches, and, below the highest rate, the one with every model on few devices. s gets the split that
// passes.
func (d *design) trySplits(ctx context.Context, i int, s *stair, rate float64) (Trial, error) {
	t, err := d.bench.try(ctx, s, rate)
	if t.Passed || err != nil {
		return t, err
	}

	// Short batches.
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

	// Few devices per model.
	few := *s
	if edges := d.x.p.Edges; rate >= edges[len(edges)-1] {
		return t, nil // this gear also serves all higher rates, and under overload the even split answers more
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

// maxPlanAccuracy returns the most accuracy that a plan can reach if its ranges from r on are at most as accurate
// as given. Higher ranges are never more accurate than lower ones.
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

// newGear returns a loaded cascade as the gear of a range with the given upper edge.
func gearOf(p *Problem, s *stair, edge float64, t Trial) Planned {
	return Planned{Cascade: *s.cascade, MinQueue: 1, Shares: s.shares, Load: s.load * edge, Trial: t, Accuracy: accuracyOn(p, s.cascade)}
}

// plannedAccuracy returns the share of the planning samples that a cascade answers correctly.
func accuracyOn(p *Problem, c *Cascade) float64 { return float64(c.Correct) / float64(p.Planned.N) }

// newTrialPlacement returns the layout as a placement to try cascades on.
func (l *layout) design(o *Options, ranges []float64) *design {
	return &design{layout: l, bench: newBench(l.x.p, l.configs, l.chains, o.Seed), ranges: ranges}
}

// loadCascade returns a cascade with the split that loads the busiest device least. If the layout lacks one of its
// models, the loads are infinite.
func (l *layout) stair(ctx context.Context, i int) (*stair, error) {
	s, err := l.split(ctx, i)
	if err != nil || s.shares == nil {
		return &stair{load: math.Inf(1), taken: math.Inf(1)}, err
	}
	return &stair{&l.x.list[i], s.load, s.taken, l.shares(s)}, nil
}

// shortBatchSplit returns a cascade with a split that keeps batches short, within a part of the time that the
// split of load maxLoad leaves free below loadLimit. If no such split exists, it returns nil.
func (l *layout) shortBatches(ctx context.Context, i int, taken, below float64) (*stair, error) {
	s, err := l.splitLoad(ctx, i, taken+mostFilled*(below-taken))
	if err != nil || s.shares == nil || s.taken >= below {
		return nil, err
	}
	return &stair{&l.x.list[i], s.load, s.taken, l.shares(s)}, nil
}

// feasibleFront returns the cascades with more than minCorrect correct answers that are on the front and that
// devices and NICs have time for at a rate, by rising load and accuracy.
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

// cascadeFront returns the cascades with more than minCorrect and up to maxCorrect correct answers that no other
// of these beats with less load, by rising load. Solved programs bound the other loads from below. Once all
// cascades on the front of these bounds have been solved, it is the front of the loads: a cascade that its bound
// excludes is also excluded by its load.
func (l *layout) front(ctx context.Context, above, most int32) ([]int, error) {
	x := l.x
	least := make([]float64, len(x.list))
	for {
		// Take the load if it is known, else its bound.
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

		// Solve the programs of the cascades on this front.
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

// infeasibleRange returns the error that range r has no gear. It names the lightest of the cascades that the
// placement has the models for.
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

// lightestCascade returns the cascade that takes the least device time, among those whose models the placement
// has. If there is none, it returns -1.
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

// noGearError returns the error that range r has no gear. c is the lightest cascade, and lastTrial the last trial,
// or nil if there was none.
func noGear(p *Problem, r int, c *Cascade, load float64, last *Trial) *Infeasible {
	inf := &Infeasible{Range: r, Edge: p.Edges[r], Model: p.Models[c.Models[0]].Name, MaxQPS: 1 / load}
	if last != nil {
		inf.LatencyMS, inf.Unstable, inf.TooMany, inf.OnHeldOut = max(0, float64(max(last.Latency, last.HeldOut))/1e6), !last.Stable, last.tooMany, last.failsHeldOut
	}
	return inf
}
