package deploy

import (
	"context"
	"errors"
	"math"
	"time"
)

// ErrTooFewDevices is returned when all devices of the cluster together do not suffice.
var ErrTooFew = errors.New("all devices of the cluster are too few")

// LayoutResult is a layout with what its runs showed.
type Found struct {
	Layout *Layout
	Score  Score
	Price  float64 // in the unit of the objective; for a goal to be maximized, the negative of its value
	Tried  int     // pools and layouts that were simulated
	// BacklogGrows says that the work of the rates is more than the instances do, so that the score is only
	// that of runs of this length.
	Grows bool
}

// screeningSlack is how many times the allowed misses a first run may have before the other runs are made.
const screened = 1.5

// highPenalty is the penalty from which on a large pool gets more than one instance at a time. Instances
// that are too many are removed later.
const far = 6

// CheapestLayout returns the cheapest layout that it finds whose classes keep their SLOs, also with one
// more instance. No layout costs less than minPrice. onBetter is called with every better layout; it may be
// nil.
func (p *Search) Fewest(ctx context.Context, o Structures, floor float64, found func(*Found)) (*Found, error) {
	list, err := p.structures(o)
	if err != nil {
		return nil, err
	}
	var best *Found

	// Grow each structure, but not beyond the price of the best so far.
	for _, s := range list {
		limit := math.Inf(1)
		if best != nil {
			limit = best.Price
		}
		f, err := p.grown(ctx, s, floor, limit, !o.Any)
		if errors.Is(err, ErrTooFew) {
			continue
		}
		if err != nil {
			if ctx.Err() != nil && best != nil {
				return best, nil
			}
			return nil, err
		}
		if f != nil && (best == nil || f.Price < best.Price) {
			if best = f; found != nil {
				found(f)
			}
		}
		if best != nil && (o.Any || best.Price <= floor*(1+1e-9)) {
			break
		}
	}
	if best == nil {
		return nil, ErrTooFew
	}
	best.Tried = len(p.kept)
	return best, nil
}

// growStructure adds instances to the pools of a structure until it passes the test, then removes those
// that are not needed if shrinkAfter is true. It returns nil once the price exceeds maxPrice. At maxPrice
// it goes on, because instances may still be removed.
func (p *Search) grown(ctx context.Context, s Structure, floor, limit float64, least bool) (*Found, error) {
	l, err := p.laid(s)
	if err != nil {
		return nil, err
	}
	if err := p.start(l); err != nil {
		return nil, err
	}
	totals := p.totals()

	// Add instances where the test hurts most.
	for {
		if l.Price(p.Problem) > limit*(1+1e-9) {
			return nil, nil
		}
		ok, worst, err := p.passes(ctx, l, totals)
		if err != nil {
			return nil, err
		}
		if ok {
			break
		}
		s, err := p.trial(ctx, &l.Pools[worst])
		if err != nil {
			return nil, err
		}
		more := 1
		if p.pain(&s, totals) > far {
			more += l.Pools[worst].Instances() / 8
		}
		for range more {
			if !p.grow(l, worst) {
				return nil, ErrTooFew
			}
		}
	}
	if least {
		if err := p.shrink(ctx, l, totals, floor); err != nil && ctx.Err() == nil {
			return nil, err // if it was interrupted, the layout as it is still passes
		}
	}

	// Runs are short: if the layout costs less than the bound, no layout of its size holds for long.
	for l.Price(p.Problem) < floor*(1-1e-9) {
		if !p.grow(l, 0) {
			return nil, ErrTooFew
		}
	}
	all, err := p.judge(ctx, l)
	if err != nil {
		return nil, err
	}
	return &Found{Layout: l, Score: all, Price: l.Price(p.Problem)}, nil
}

// addInitialInstances gives every pool the instances that its work fills, of the cheapest kinds for that
// work. Replayed requests may be worked on until their SLO after the last arrival.
func (p *Search) start(l *Layout) error {
	for i := range l.Pools {
		x := &l.Pools[i]
		left := 1 / Room
		if p.Replay != nil {
			first, _ := p.urgent(x.Items)
			span := p.lasts()
			left = span / (span + p.Classes[p.Items[first[0]].Class].SLO.Seconds())
		}
		for _, k := range p.kindsFor(x) {
			need, err := p.need(x, k)
			if err != nil {
				return err
			}
			x.Counts[k] = min(max(int(math.Ceil(left*need-1e-9)), 1), l.left(p.Problem, k))
			if left -= float64(x.Counts[k]) / max(need, 1e-9); left <= 0 {
				break
			}
		}
		if x.Instances() == 0 {
			return ErrTooFew
		}
	}
	return nil
}

// replaySeconds returns how long replayed requests arrive in a run, in seconds.
func (p *Search) lasts() float64 {
	last := time.Duration(0)
	for _, r := range p.Replay(0) {
		last = max(last, r.At)
	}
	return max(last.Seconds(), 1)
}

// kindsByCost returns the kinds that run all models of a pool, by the price of its work there.
func (p *Search) kindsFor(x *Pool) []int {
	var out []int
	cost := make([]float64, len(p.Kinds))
	for k := range p.Kinds {
		if !p.runs(k, x.Items) {
			continue
		}
		need, err := p.need(x, k)
		if err != nil {
			continue
		}
		cost[k] = need * p.Kinds[k].Price

		// Insert the kind in order.
		at := len(out)
		for at > 0 && cost[out[at-1]] > cost[k] {
			at--
		}
		out = append(out[:at], append([]int{k}, out[at:]...)...)
	}
	return out
}

// busyInstances returns how many instances of a kind the work of a pool keeps busy. Prompts of sessions may
// be cached, so they count nothing.
func (p *Trials) need(x *Pool, kind int) (float64, error) {
	sum := 0.0
	for _, m := range p.ModelsOf(x.Items) {
		e, err := p.estimated(m, kind, x.Caps[kind][m])
		if err != nil {
			return 0, err
		}
		for _, i := range x.Items {
			if p.Items[i].Model == m {
				prompt, output, _ := moments(p.Classes[p.Items[i].Class].Sample)
				if p.Classes[p.Items[i].Class].Sessions != nil {
					prompt = 0
				}
				sum += p.Items[i].RPS * (e.rct.Alpha*prompt + e.rct.Beta*output)
			}
		}
	}
	return sum, nil
}

// testLayout tests a layout by a run of each pool, in which it also tunes the caps, then by all runs of the
// whole. The layout must also pass with one more instance, if there is a device for it. worstPool is the
// pool with the highest penalty.
func (p *Search) passes(ctx context.Context, l *Layout, totals []int64) (ok bool, worst int, err error) {
	// Screen the pools, each alone.
	by := make([]Score, len(l.Pools))
	sum := p.newScore()
	for i := range l.Pools {
		if by[i], err = p.tune(ctx, &l.Pools[i], totals); err != nil {
			return false, 0, err
		}
		sum.add(&by[i])
	}
	if worst, err = p.worst(l, by, totals); err != nil || !p.holds(&sum, screened) {
		return false, worst, err
	}

	// Judge the layout as a whole: with the search's limit on re-plans first, then as the plan runs.
	all, err := p.together(ctx, l, p.SearchWork)
	if err == nil && p.holds(&all, 1) {
		all, err = p.judge(ctx, l)
	}
	if err != nil {
		return false, worst, err
	}
	if !p.holds(&all, 1) {
		for i := range l.Pools {
			by[i] = p.poolOf(&all, &l.Pools[i])
		}
		worst, err = p.worst(l, by, totals)
		return false, worst, err
	}

	// A layout that passes only by luck often fails with one more instance.
	more := l.clone()
	if !p.grow(more, worst) {
		return true, worst, nil
	}
	all, err = p.together(ctx, more, p.SearchWork)
	return err == nil && p.holds(&all, 1), worst, err
}

// worstPool returns the index of the pool with the highest penalty. Among equals it is the busiest.
func (p *Search) worst(l *Layout, by []Score, totals []int64) (int, error) {
	worst, most, full := 0, -1.0, 0.0
	for i := range by {
		busy, err := p.busy(&l.Pools[i])
		if err != nil {
			return 0, err
		}
		if hurt := p.pain(&by[i], totals); hurt > most || hurt == most && busy > full {
			worst, most, full = i, hurt, busy
		}
	}
	return worst, nil
}

// addInstance adds an instance to a pool, of the cheapest kind for its work that has devices left. If none
// has, it returns false.
func (p *Search) grow(l *Layout, pool int) bool {
	for _, k := range p.kindsFor(&l.Pools[pool]) {
		if l.left(p.Problem, k) > 0 {
			l.Pools[pool].Counts[k]++
			return true
		}
	}
	return false
}

// removeInstances removes instances as long as the layout passes without them and costs at least minPrice.
func (p *Search) shrink(ctx context.Context, l *Layout, totals []int64, floor float64) error {
	for again := true; again; {
		again = false
		for i := range l.Pools {
			for k := range p.Kinds {
				if l.Pools[i].Counts[k] == 0 || l.Pools[i].Instances() == 1 || l.Price(p.Problem)-p.Kinds[k].Price < floor*(1-1e-9) {
					continue
				}
				less := l.clone()
				less.Pools[i].Counts[k]--
				ok, _, err := p.passes(ctx, less, totals)
				if err != nil {
					return err
				}
				if ok {
					*l, again = *less, true
				}
			}
		}
	}
	return nil
}
