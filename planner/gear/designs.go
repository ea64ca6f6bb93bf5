package gear

import (
	"context"
	"slices"
	"time"
)

// designs are the placements of whole models that seem best under a problem's SLO and
// with batches as long as it allows, the best first. On several kinds it is one. Cascades
// on it may take longer than the SLO: only batches are limited.
func (s *quickest) designs(ctx context.Context, p *Problem, most int) (list []*design, err error) {
	if !p.Mixed() {
		cascades, _, err := s.cascades(p)
		if err != nil {
			return nil, err
		}
		all := s.known.of(p, p.usable()).list
		x := &exact{p, all, p.works(all), s.o, nil}
		for _, c := range (placing{p}).ranked(cascades, p.works(cascades), most) {
			list = append(list, x.design(c))
		}
		return list, nil
	}
	x := &mixed{p: p, solver: s.solver, known: s.known}
	x.priceModels()
	if err := x.cascades(); err != nil {
		return nil, err
	}
	x.configurations()
	placed, _, err := x.place(ctx)
	if err != nil {
		return nil, err
	}
	return []*design{x.layoutOf(placed, nil).design(s.o, nil)}, nil
}

// longestBatch is the longest time of a batch on a design's devices.
func (d *design) longestBatch() time.Duration {
	longest := time.Duration(0)
	batch, _ := speedsOf(d.p)
	for k := range batch {
		for m, n := range batch[k] {
			if n > 0 {
				longest = max(longest, d.p.timesOn(m, k)[n-1])
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

// timesOn is how long a model's batches take on a kind.
func (p *Problem) timesOn(m, kind int) []time.Duration {
	if p.Mixed() {
		return variantOf(p, m, kind).Times
	}
	return p.Models[m].Times
}
