package gear

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// solveCache holds what is computed once for all latencies and devices of a problem.
type catalogue struct {
	lists  map[uint32]listed   // by set of usable models, as bits
	trials map[string]*verdict // by placement, cascade and rate
}

// newSolveCache returns an empty cache.
func newCatalogue() *catalogue { return &catalogue{map[uint32]listed{}, map[string]*verdict{}} }

// prunedCascades are the cascades of some models that are on some front.
type listed struct {
	list  []Cascade
	found int // number before pruning
}

// cascadesOf returns the pruned cascades of the usable models. c may be nil, which caches nothing.
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

// planInputs is what a problem is planned from: the space of whole models, and the one with members in stages.
type ways struct {
	p      *Problem
	whole  *fleet
	none   error // why no cascade of whole models is in time; nil if some is
	staged *fleet
	chains []*Chain
	least  []time.Duration // by member: least time of a sample in stages; 0 if it cannot be cut
}

// planInputsFor returns the inputs of a problem. Those of the last SLO are kept, because numbers of devices do not
// change them.
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

// forProblem returns the inputs for a problem with other numbers of devices.
func (w *ways) on(p *Problem) *ways {
	out := *w
	out.p, out.whole, out.staged = p, w.whole.on(p), w.staged.on(p)
	return &out
}

// forProblem returns the space for a problem with other numbers of devices. It keeps its own models, because those
// of members in stages have other times than the problem's.
func (x *fleet) on(p *Problem) *fleet {
	y, q := *x, *p
	q.Models, q.SLO = x.p.Models, x.p.SLO // the models of members in stages are not the problem's
	y.p = &q
	return &y
}

// boundSpace returns the space that bounds are computed in. If every range keeps the SLO, it is that of the
// inputs. If all requests together keep it, the space has all cascades with any latency, with the least share of
// late requests of each. A range then uses no cascade that makes more of all requests late than the percentile
// allows.
func (s *search) boundOf(ctx context.Context, p *Problem, w *ways) (*fleet, error) {
	if !p.Overall {
		return w.staged, nil
	}

	// Make the space without an SLO once, and keep it.
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

// computeBounds returns the accuracies that no plan exceeds, by range and over all ranges, and the share of the
// samples that each chain carries in the relaxation under the SLO.
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

	// With an SLO over all requests ranges share the late ones.
	pool, err := p.pool(ctx, w.staged, x)
	if err != nil {
		return nil, 0, nil, err
	}
	total = pool.laxBounds(bounds)
	if p.shown() { // a plan on measured rates need not hold the highest rate
		total = atLeast(total, pool.measuredBound())
	}
	return bounds, total, use, nil
}

// planMostAccurate returns the most accurate plan under an SLO. With an accuracy target it returns a plan that
// reaches it. It plans with whole models first, and then with some in stages if the relaxation shows that this may
// help. It also tries one cascade for all ranges, and climbing.
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

// planFrom plans from the inputs.
func (s *search) from(ctx context.Context, p *Problem, w *ways) (*Outcome, error) {
	// Bounds first: a target above them needs no search.
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

	// Plan with whole models, then in stages.
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

	// If the SLO is over all requests, let some ranges be late, and try one cascade for all ranges.
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

	// Climb, if the measured rates allow it.
	s.runs += t.runs
	if out, err = s.climbed(ctx, out); err != nil {
		return nil, err
	}
	if p.misses(out.Accuracy) { // an interrupted search does not show what can be reached
		return nil, cmp.Or[error](ctx.Err(), &Infeasible{Target: p.Target, Best: out.Accuracy})
	}

	// Fill in the outcome's figures.
	out.leaveOut(out.Problem)
	out.Cascades, out.Goal, out.Runs, out.GearBound = s.enumerated, s.p.Goal(), s.runs, t.gears
	if out.TriedBound = 0; t.tried > 0 {
		out.TriedBound = max(t.tried, out.Accuracy)
	}
	out.bound(bounds, total)
	out.valued()
	return out, nil
}

// setBounds sets the bounds of the ranges and of the whole plan.
func (out *Outcome) bound(bounds []float64, total float64) {
	for r := range out.Gears {
		out.Gears[r].Bound = max(bounds[r], out.Gears[r].Accuracy)
	}
	out.Bound = total
}

// setValue sets the value to the accuracy. If the accuracy is the goal, the value's bound is the least known one.
func (out *Outcome) valued() {
	if out.Value, out.ValueBound = out.Accuracy, out.Bound; out.Goal != MostAccurate {
		return
	}
	if out.GearBound > 0 {
		out.ValueBound = min(out.Bound, out.GearBound)
	}
	out.Proved = out.Value >= out.ValueBound-sumsRound
}

// settledByTrials reports whether trials leave no plan that is better by nextPlacementGain or more.
func (out *Outcome) settled() bool {
	if out.Goal == MostAccurate {
		return out.TriedBound > 0 && out.TriedBound < out.Value+considerable
	}
	return out.TriedBound > 0 && out.TriedBound >= out.Value
}

// boundsFor returns the accuracies that no plan of a problem exceeds, by range and over all ranges.
func (s *search) boundsAt(ctx context.Context, p *Problem) (bounds []float64, total float64, err error) {
	w, err := s.waysOf(ctx, p)
	if err == nil {
		bounds, total, _, err = s.boundsOf(ctx, p, w)
	}
	return bounds, total, err
}

// boundOneMoreDevice sets the bound of the accuracy with one more device of each kind.
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

// placementSearch plans on one placement after another and keeps the best plan.
type tries struct {
	*search
	p       *Problem
	bounds  []float64 // accuracy that no plan exceeds, by range
	total   float64   // the same over all ranges
	best    *Outcome  // nil before there is one
	missing error     // why the first placement without a plan has none
	runs    int       // simulated runs

	wholeOnly bool    // no member runs in stages
	gears     float64 // accuracy that no plan of one cascade per range exceeds; 0 if not known
	tried     float64 // accuracy that no plan exceeds that passes trials; 0 if not known
}

// isDone reports whether no other placement need be tried: there is a plan and any plan suffices, or no other plan
// can be noticeably better.
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

// maxPlacements returns the largest number of placements that are tried. For the least latency it is small,
// because then many plans are made and most of them fail.
func (t *tries) most() int {
	if t.search.p.Goal() == LeastLatency {
		return latencyPlacements
	}
	return fewPlacements
}

// accuracyToExceed returns the accuracy that a plan must exceed, after some other placements were tried and with
// the batch limit at an index of withBatchLimits. If any plan will do, it is 0.
func (t *tries) toExceed(others, limit int) float64 {
	switch {
	case t.best == nil:
		return 0
	case limit > 0:
		return t.best.Accuracy + max(worthFurther(others)-worthwhile, worthShorter)
	}
	return t.best.Accuracy + worthFurther(others) - worthwhile
}

// keepIfBetter keeps a plan that is better than the best so far. If the SLO is over all requests, it also keeps
// one that is as good, because its batches are shorter. A plan below the target is kept only if it may still
// climb.
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

// planWithStages plans with members in stages, for chains as long as the SLO and half as long. It tries the best
// placement of every choice of chains, and then the others that may be noticeably better.
func (t *tries) inStages(ctx context.Context, w *ways, use []float64) error {
	y := w.staged
	for _, within := range []time.Duration{t.p.SLO, t.p.SLO / 2} {
		if t.enough() {
			break
		}

		// The space with chains of at most half the SLO.
		if within < t.p.SLO {
			var err error
			if y, err = y.inStages(ctx, t.p, worthwhileChains(w.chains, within), w.least); err != nil {
				t.missing = cmp.Or(t.missing, err)
				break // no chain is that fast
			}
			if _, use, err = y.bounds(ctx); err != nil {
				return err
			}
		}

		// The best placement of each choice.
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

		// The others, the best first.
		slices.SortStableFunc(top, (*laid).compare)
		if err := t.on(ctx, top[:min(len(top), t.most())], 0); err != nil {
			return err
		}
	}
	return nil
}

// chainChoices returns spaces with different chosen chains: those that the relaxation uses; these and the chains
// over devices that a member does not fit on; and each chain alone.
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
