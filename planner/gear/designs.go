package gear

import (
	"context"
	"time"
)

// latencyDesigns is how many placements are tried for each length of batches, where the
// least latency is looked for.
const latencyDesigns = 3

// designs are the placements of whole models that seem best under a problem's SLO and
// with batches as long as it allows, the best first.
func (s quickest) designs(ctx context.Context, p *Problem) (list []*design, err error) {
	if !p.Mixed() {
		cascades, _, err := s.cascades(p)
		if err != nil {
			return nil, err
		}
		x := &exact{p, cascades, p.works(cascades), s.o}
		for _, c := range (placing{p}).ranked(cascades, x.work, latencyDesigns) {
			if c.feasible == len(p.Edges) && !p.misses(c.accuracy) {
				list = append(list, x.design(c))
			}
		}
		return list, nil
	}
	x := &mixed{p: p, solver: s.solver, known: s.known}
	x.measure()
	if err := x.cascades(); err != nil {
		return nil, err
	}
	x.configurations()
	placements, err := x.worthwhilePlacements(ctx)
	for _, placed := range placements[:min(latencyDesigns, len(placements))] {
		list = append(list, x.lay(placed, nil).design(s.o, nil))
	}
	return list, err
}

// longestBatch is the longest time of a batch on a design's devices.
func (d *design) longestBatch() time.Duration {
	longest := time.Duration(0)
	batch, _ := speedsOf(d.p)
	for k := range batch {
		for m, n := range batch[k] {
			times := d.p.Models[m].Times
			if d.p.Mixed() {
				times = variantOf(d.p, m, k).Times
			}
			if n > 0 {
				longest = max(longest, times[n-1])
			}
		}
	}
	return longest
}
