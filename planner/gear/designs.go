package gear

import (
	"context"
	"slices"
	"time"
)

// designs are the placements of whole models that seem best under a problem's SLO and
// with batches as long as it allows, the best first. On several kinds it is one. Cascades
// on identical devices may take longer than the SLO: only batches are limited.
func (s *quickest) designs(ctx context.Context, p *Problem, most int) (list []*design, err error) {
	x, err := wholeFleet(p, s.solver, s.known)
	if err != nil {
		return nil, err
	}
	s.enumerated = max(s.enumerated, x.found)
	if p.Mixed() {
		placed, _, err := x.place(ctx)
		if err != nil {
			return nil, err
		}
		return []*design{x.layoutOf(placed, nil).design(s.o, nil)}, nil
	}
	top, _, err := x.ranked(ctx, most, nil)
	y := *x
	y.take(s.known.of(p, p.usable()).list)
	for _, c := range top {
		list = append(list, y.layoutOf(c.l.configs, nil).design(s.o, c.ranges))
	}
	return list, err
}

// longestBatch is the longest time of a batch on a design's devices.
func (d *design) longestBatch() time.Duration {
	longest := time.Duration(0)
	batch, _ := speedsOf(d.p)
	for k := range batch {
		for m, n := range batch[k] {
			if n > 0 {
				longest = max(longest, d.p.variant(m, k).Times[n-1])
			}
		}
	}
	return longest
}

// sameAs tells whether a design is the same as another but for the latencies looked for.
func (d *design) sameAs(other *design) bool {
	mine, _ := speedsOf(d.p)
	its, _ := speedsOf(other.p)
	return slices.EqualFunc(mine, its, slices.Equal[[]int])
}
