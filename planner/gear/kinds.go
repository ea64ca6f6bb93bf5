package gear

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// catalogue is what is found out once, whichever latency or devices are looked at: the
// cascades of sets of usable models, and what trials said.
type catalogue struct {
	lists  map[uint32]listed
	trials map[string]*verdict // by what was tried
}

func newCatalogue() *catalogue { return &catalogue{map[uint32]listed{}, map[string]*verdict{}} }

// listed are the cascades that are on some front, and how many were enumerated.
type listed struct {
	list  []Cascade
	found int
}

func (c *catalogue) of(ctx context.Context, p *Problem, usable []bool) (listed, error) {
	set := uint32(0)
	for m, ok := range usable {
		if ok {
			set |= 1 << m
		}
	}
	if c == nil {
		c = newCatalogue()
	}
	got, ok := c.lists[set]
	if !ok {
		all := Enumerate(p.Planned, p.Grid, usable)
		pruned, err := prune(ctx, all, len(p.Models))
		if err != nil {
			return got, err
		}
		got = listed{pruned, len(all)}
		c.lists[set] = got
	}
	return got, nil
}

// ways are what a problem is planned from: members as
// whole models, and in stages.
type ways struct {
	p      *Problem
	whole  *fleet
	none   error // that no cascade of whole models is in time
	staged *fleet
	chains []*Chain
	least  []time.Duration // in which a sample passes a member in stages
}

// waysOf finds them, of which those of the SLO looked at last are kept: numbers of
// devices change nothing in them.
func (s *search) waysOf(ctx context.Context, p *Problem) (*ways, error) {
	if w := s.kinds; w != nil && w.p.SLO == p.SLO {
		return w.on(p), nil
	}
	chains, least, err := chainsOf(p)
	if err != nil {
		return nil, err
	}
	w := &ways{p: p, chains: chains, least: least}
	if w.whole, w.none = wholeFleet(ctx, p, s.solver, s.known); w.none != nil && (len(chains) == 0 || !none(w.none)) {
		return nil, w.none
	}
	if w.staged, err = w.whole.inStages(ctx, p, worthwhileChains(chains, p.SLO), least); err != nil {
		return nil, cmp.Or(w.none, err)
	}
	s.kinds, s.enumerated = w, max(s.enumerated, w.staged.found)
	return w.on(p), nil
}

// on are the same ways on other numbers of devices.
func (w *ways) on(p *Problem) *ways {
	out := *w
	out.p, out.whole, out.staged = p, w.whole.on(p), w.staged.on(p)
	return &out
}

func (x *fleet) on(p *Problem) *fleet {
	y, q := *x, *p
	q.Models, q.SLO = x.p.Models, x.p.SLO // the models of members in stages are not the problem's
	y.p = &q
	return &y
}

// boundOf is what bounds are found with: the ways themselves, and where the SLO is for
// all requests together those without one. Of these a range takes no cascade that
// makes more of all requests late than the percentile allows.
func (s *search) boundOf(ctx context.Context, p *Problem, w *ways) (*fleet, error) {
	if !p.Overall {
		return w.staged, nil
	}
	if s.lax == nil {
		q := *s.p
		_, q.SLO = q.extremes()
		own := s.kinds
		s.kinds = nil
		lax, err := s.waysOf(ctx, &q)
		if s.kinds = own; err != nil {
			return nil, err
		}
		x := *lax.staged
		in := *x.p
		in.SLO = p.SLO
		for i := range x.list {
			x.late = append(x.late, lateAtLeast(&in, &x.list[i]))
		}
		lax.staged, s.lax = &x, lax
	}
	return s.lax.on(p).staged, nil
}

// boundsOf are what no plan exceeds, by range and over all. use is what chains carry where
// the SLO is for every range.
func (s *search) boundsOf(ctx context.Context, p *Problem, w *ways) (bounds []float64, total float64, use []float64, err error) {
	x, err := s.boundOf(ctx, p, w)
	if err != nil {
		return nil, 0, nil, err
	}
	bounds, use, err = x.bounds(ctx)
	if err == nil && x != w.staged && len(w.chains) > 0 {
		_, use, err = w.staged.bounds(ctx)
	}
	if total = p.weighted(bounds); err != nil || !p.Overall {
		return bounds, total, use, err
	}
	pool, err := p.pool(ctx, w.staged, x)
	if err != nil {
		return nil, 0, nil, err
	}
	total = pool.laxBounds(bounds)
	if p.shown() { // neither one cascade for all rates nor a range need hold the highest
		total = atLeast(total, pool.measuredBound())
	}
	return bounds, total, use, nil
}

// once plans for the most accuracy under an SLO; with a target, that much at least. With
// whole models first, and then with some in stages, where the relaxation says that there is
// something in it; also with one cascade for all ranges, and with ranges that climb.
func (s *search) once(ctx context.Context, p *Problem) (out *Outcome, err error) {
	w, err := s.waysOf(ctx, p)
	if err == nil {
		out, err = s.from(ctx, p, w)
	}
	if err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	return out, nil
}

// from plans from the ways.
func (s *search) from(ctx context.Context, p *Problem, w *ways) (*Outcome, error) {
	bounds, total, use, err := s.boundsOf(ctx, p, w)
	if err != nil {
		return nil, err
	}
	if p.misses(total + reaches) {
		return nil, p.short(total)
	}
	t := &tries{search: s, p: p, bounds: bounds, total: total, missing: w.none, wholeOnly: len(w.chains) == 0}
	if !t.wholeOnly && !p.Overall && s.p.Goal() != LeastLatency {
		if t.gears, err = singleGears(ctx, w.staged); err != nil {
			return nil, err
		}
		if t.gears > 0 && p.misses(t.gears+reaches) {
			return nil, p.short(t.gears)
		}
	}
	if w.none == nil {
		err = t.wholeModels(ctx, w.whole)
	}
	if err == nil && len(w.chains) > 0 {
		err = t.inStages(ctx, w, use)
	}
	t.best = s.orEarly(ctx, t.best)
	if _, err := kept(ctx, t.best, err); err != nil {
		return nil, err
	}
	out, err := t.best, t.missing
	if p.Overall && out != nil {
		err := out.allowLateRanges(ctx)
		t.runs += out.design.bench.runs
		if _, err := kept(ctx, out, err); err != nil {
			return nil, err
		}
	}
	if p.Overall && (out == nil || !s.o.Any || p.Target > 0) {
		out, err = s.single(ctx, p, w.staged, out, err)
	}
	if out == nil {
		return nil, err
	}
	s.runs += t.runs
	if out, err = s.climbed(ctx, out); err != nil {
		return nil, err
	}
	if p.misses(out.Accuracy) { // a search that was cut short says nothing of what can be reached
		return nil, cmp.Or[error](ctx.Err(), &Infeasible{Target: p.Target, Best: out.Accuracy})
	}
	out.leaveOut(out.Problem)
	out.Cascades, out.Goal, out.Runs, out.GearBound = s.enumerated, s.p.Goal(), s.runs, t.gears
	if out.TriedBound = 0; t.tried > 0 {
		out.TriedBound = max(t.tried, out.Accuracy)
	}
	out.bound(bounds, total)
	out.valued()
	return out, nil
}

// bound writes down what no plan exceeds, by range and over all.
func (out *Outcome) bound(bounds []float64, total float64) {
	for r := range out.Gears {
		out.Gears[r].Bound = max(bounds[r], out.Gears[r].Accuracy)
	}
	out.Bound = total
}

// valued makes the accuracy the value. Where that is the goal, it has the least bound that
// is known.
func (out *Outcome) valued() {
	if out.Value, out.ValueBound = out.Accuracy, out.Bound; out.Goal != MostAccurate {
		return
	}
	if out.GearBound > 0 {
		out.ValueBound = min(out.Bound, out.GearBound)
	}
	out.Proved = out.Value >= out.ValueBound-sumsRound
}

// settled tells that trials leave no plan that is considerably better.
func (out *Outcome) settled() bool {
	if out.Goal == MostAccurate {
		return out.TriedBound > 0 && out.TriedBound < out.Value+considerable
	}
	return out.TriedBound > 0 && out.TriedBound >= out.Value
}

// boundsAt are what no plan exceeds, by range and over all.
func (s *search) boundsAt(ctx context.Context, p *Problem) (bounds []float64, total float64, err error) {
	w, err := s.waysOf(ctx, p)
	if err == nil {
		bounds, total, _, err = s.boundsOf(ctx, p, w)
	}
	return bounds, total, err
}

// more bounds the accuracy with one more device of each kind.
func (s *search) more(ctx context.Context, out *Outcome) error {
	n := s.p.devices()
	for k := range n {
		one := slices.Clone(n)
		one[k]++
		p := s.p.on(one)
		p.Overall = out.Problem.Overall
		_, b, err := s.boundsAt(ctx, p)
		if err != nil {
			return err
		}
		out.MoreOf = append(out.MoreOf, b)
	}
	return nil
}

// tries are the plans of a problem, of which the best stands.
type tries struct {
	*search
	p       *Problem
	bounds  []float64 // by range
	total   float64
	best    *Outcome
	missing error // of the first that was none
	runs    int

	wholeOnly bool    // no member runs in stages
	gears     float64 // what no plan of one cascade per range exceeds; 0: not known
	tried     float64 // what none exceeds that trials accept; 0: not known
}

// enough tells that no other plan is worth a try: there is nothing to be had, or no
// more than a plan, or the target, was asked for.
func (t *tries) enough() bool {
	if t.best == nil || t.p.Target > 0 || t.o.Any {
		return t.best != nil
	}
	most := t.total
	if t.gears > 0 {
		most = t.gears
	}
	return !(most > t.best.Accuracy+worthwhile)
}

// most returns the largest number of placements that are tried. Of the least latency many plans are made, and most fail.
func (t *tries) most() int {
	if t.search.p.Goal() == LeastLatency {
		return latencyPlacements
	}
	return fewPlacements
}

// toExceed is what a plan has to exceed after some others, with batches of the limit at a
// place in their list; 0: any will do.
func (t *tries) toExceed(others, limit int) float64 {
	switch {
	case t.best == nil:
		return 0
	case limit > 0:
		return t.best.Accuracy + max(worthFurther(others)-worthwhile, worthShorter)
	}
	return t.best.Accuracy + worthFurther(others) - worthwhile
}

// keepIfBetter keeps a plan that is better by something; where ranges may yet climb, also one that is as good
// in shorter batches. A plan that misses the target may
// still climb.
func (t *tries) keepIfBetter(out *Outcome, err error) error {
	if none(err) {
		t.missing = cmp.Or(t.missing, err)
		return nil
	}
	if err != nil {
		return err
	}
	switch t.runs += out.Runs; {
	case t.p.misses(out.Accuracy) && !t.p.shown():
		t.missing = cmp.Or[error](t.missing, &Infeasible{Target: t.p.Target, Best: out.Accuracy})
	case t.best == nil || out.Accuracy > t.best.Accuracy || t.p.Overall && out.Accuracy == t.best.Accuracy:
		t.best = out
	}
	return nil
}

// inStages plans with members in stages, with chains as long as the SLO and half as
// long: first on the best placement of every list of chains, then on others that may be
// considerably better.
func (t *tries) inStages(ctx context.Context, w *ways, use []float64) error {
	y := w.staged
	for _, within := range []time.Duration{t.p.SLO, t.p.SLO / 2} {
		if t.enough() {
			break
		}
		if within < t.p.SLO {
			var err error
			if y, err = y.inStages(ctx, t.p, worthwhileChains(w.chains, within), w.least); err != nil {
				t.missing = cmp.Or(t.missing, err)
				break // nothing is as fast
			}
			if _, use, err = y.bounds(ctx); err != nil {
				return err
			}
		}
		var top []*laid
		for _, z := range y.withChains(use) {
			list, _, err := z.ranked(ctx, t.most())
			if err == nil {
				err = t.on(ctx, list[:1], 0)
			}
			if err != nil {
				return err
			}
			top = append(top, list[1:]...)
		}
		slices.SortStableFunc(top, (*laid).compare)
		if err := t.on(ctx, top[:min(len(top), t.most())], 0); err != nil {
			return err
		}
	}
	return nil
}

// withChains are the fleets to place chains of: those that the relaxation makes use of,
// these with those as well that go over devices which a member does not fit on, and each
// alone.
func (x *fleet) withChains(use []float64) (list []*fleet) {
	used := x.inUse(use)
	all := append(slices.Clone(used), x.forMemory()...)
	lists := [][]*Chain{used, all}
	for c := range all {
		lists = append(lists, all[c:c+1])
	}
	for _, chains := range lists {
		y := *x
		y.useChains(chains)
		if len(y.run) > 0 && !slices.ContainsFunc(list, func(o *fleet) bool { return slices.Equal(o.run, y.run) }) {
			list = append(list, &y)
		}
	}
	return list
}
