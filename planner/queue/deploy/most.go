package deploy

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Most finds the layout on all devices with which the most requests are in time.
func (p *Search) Most(ctx context.Context, o Structures, found func(*Found)) (*Found, error) {
	return p.full(ctx, o, func(l *Layout) (*Found, error) {
		all, _, err := p.judge(ctx, l, max(p.Seeds, 1), 1)
		if err != nil {
			return nil, err
		}
		return &Found{Layout: l, Score: all, Price: -p.inTime(&all)}, nil
	}, found)
}

// inTime is the requests per second that a score shows to be in time.
func (p *Trials) inTime(s *Score) float64 {
	sum := 0.0
	for i := range p.Items {
		sum += p.Items[i].RPS * s.Attained(p.Classes[p.Items[i].Class].Judged)
	}
	return sum
}

// full gives all devices to the pools of each structure, and keeps the layout of the
// least price.
func (p *Search) full(ctx context.Context, o Structures, judge func(*Layout) (*Found, error), found func(*Found)) (*Found, error) {
	list, err := p.structures(o)
	if err != nil {
		return nil, err
	}
	var best *Found
	totals := p.totals(1)
	for _, s := range list {
		l, err := p.dealt(s)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		for i := range l.Pools {
			if _, err := p.tune(ctx, &l.Pools[i], totals, 1, 1); err != nil {
				return p.orBest(ctx, best, err)
			}
		}
		f, err := judge(l)
		if err != nil {
			return p.orBest(ctx, best, err)
		}
		if best == nil || f.Price < best.Price-1e-12 {
			if best = f; found != nil {
				found(f)
			}
		}
	}
	if best == nil {
		return nil, ErrTooFew
	}
	best.Tried = len(p.kept)
	return best, nil
}

// orBest is the best so far where the search was interrupted.
func (p *Search) orBest(ctx context.Context, best *Found, err error) (*Found, error) {
	if best != nil && ctx.Err() != nil {
		return best, nil
	}
	return nil, err
}

// dealt gives every device to the pool that has the most work for each that it has;
// nil where a pool gets none.
func (p *Search) dealt(s Structure) (*Layout, error) {
	l, err := p.laid(s)
	if err != nil {
		return nil, err
	}
	have := make([]float64, len(l.Pools)) // of the work of each pool, the part that its instances do
	kinds := make([]int, len(p.Kinds))
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { // those that run the fewest models first
		return cmp.Compare(p.runnable(a), p.runnable(b))
	})
	for _, k := range kinds {
		for range p.Kinds[k].Most {
			to, least := -1, math.Inf(1)
			for i := range l.Pools {
				if p.runs(k, l.Pools[i].Items) && have[i] < least {
					to, least = i, have[i]
				}
			}
			if to < 0 {
				break
			}
			need, err := p.need(&l.Pools[to], k)
			if err != nil {
				return nil, err
			}
			l.Pools[to].Counts[k]++
			have[to] += 1 / max(need, 1e-9)
		}
	}
	for i := range l.Pools {
		if l.Pools[i].Instances() == 0 {
			return nil, nil
		}
	}
	return l, nil
}

// runnable is the number of models that a kind runs.
func (p *Problem) runnable(kind int) int {
	n := 0
	for m := range p.Models {
		if p.Models[m].On[kind] != nil {
			n++
		}
	}
	return n
}

// Scaled is the problem with all rates multiplied.
func (p *Search) Scaled(factor float64) *Search {
	q := *p.Problem
	q.Items = slices.Clone(p.Items)
	for i := range q.Items {
		q.Items[i].RPS *= factor
	}
	return New(&q)
}

// Highest finds the layout on all devices that carries the highest multiple of the
// rates, at most double, with which every class keeps its SLO.
func (p *Search) Highest(ctx context.Context, o Structures, found func(*Found)) (*Found, error) {
	return p.full(ctx, o, func(l *Layout) (*Found, error) {
		at, score, err := p.highest(ctx, l)
		if at > 0 && ctx.Err() != nil {
			err = nil // interrupted, it carries so much at least
		}
		return &Found{Layout: l, Score: score, Price: -at}, err
	}, found)
}

// halvings of a search for a factor up to double the rates: it ends within three
// percent of them.
const halvings = 6

// highest is the largest multiple of the rates that a layout carries, of a grid. With an
// error it is the largest so far.
func (p *Search) highest(ctx context.Context, l *Layout) (float64, Score, error) {
	kept := p.newScore()
	low, high := 0, 1<<halvings
	var err error
	for high-low > 1 && err == nil {
		mid := (low + high) / 2
		all, ok, failed := p.attains(ctx, l, float64(mid)/(1<<(halvings-1)))
		if err = failed; ok {
			low, kept = mid, all
		} else {
			high = mid
		}
	}
	return float64(low) / (1 << (halvings - 1)), kept, err
}

// attains tells whether a layout keeps the SLOs at a multiple of the rates: in one
// run, and if that is not far off, in all.
func (p *Search) attains(ctx context.Context, l *Layout, factor float64) (Score, bool, error) {
	all, _, err := p.judge(ctx, l, 1, factor)
	if err != nil || !p.holds(&all, screened) {
		return all, false, err
	}
	all, _, err = p.judge(ctx, l, max(p.Seeds, 1), factor)
	return all, err == nil && p.holds(&all, 1), err
}
