package gear

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Parameters of the search for the least latency: the ratio of latencies at which it ends, the longest latency in
// multiples of the largest batches of all models, and the placements that are tried for each latency.
const (
	latencyStep       = 1.02
	slowest           = 20
	latencyPlacements = 6
)

// planFastest returns a plan with the least latency that every range keeps while the weighted accuracy reaches the
// target. It makes the most accurate plans within latencies. Latencies at which the relaxation misses the target
// are not simulated.
//
//  1. From twice the least latency of the relaxation, or from that of a plan of less accuracy, latencies rise by
//     growing factors until there is a plan.
//  2. Between the last latency without a plan and that one, bisection finds the least.
func (s *search) fastest(ctx context.Context) (*Outcome, error) {
	bound, least, top, err := s.latencies(ctx)
	if err != nil {
		return nil, err
	}

	// Step 1: raise the latency.
	low, latency, factor := bound, 2*least, 2.
	if start := s.o.startLatency; start > least {
		low, latency, factor = start, start, latencyStep
	}
	var best *Outcome
	for best == nil && err == nil {
		latency = min(latency, top)
		if best, err = s.once(ctx, s.p.within(latency)); none(err) && latency < top {
			low, err = latency, nil
		}
		latency, factor = time.Duration(factor*float64(latency)), min(2, factor*factor)
	}

	// Step 2: bisect.
	if err == nil {
		_, _, err = between(low, best.Problem.SLO, func(latency time.Duration) (bool, error) {
			out, err := s.once(ctx, s.p.within(latency))
			if err == nil && out.worst() < best.worst() {
				best = out
			}
			if none(err) {
				return false, nil
			}
			return true, err
		})
	}
	if best, err = kept(ctx, best, err); err != nil {
		return nil, err
	}

	// Set value and bounds.
	bounds, total, err := s.boundsAt(context.WithoutCancel(ctx), s.p.within(best.Problem.SLO))
	if err != nil {
		return nil, err
	}
	best.bound(bounds, total)
	best.Runs = s.runs
	best.Value = best.worst().Seconds() * 1e3
	best.ValueBound = min(bound.Seconds()*1e3, best.Value)
	return best, nil
}

// latencyBracket returns a latency at which the relaxation misses the target, one just above it at which it
// reaches the target, and the longest latency that is tried. It returns an error if the target is out of reach.
func (s *search) latencies(ctx context.Context) (low, least, top time.Duration, err error) {
	low, top = s.p.extremes()
	reached := func(latency time.Duration) (float64, error) { return s.relaxed(ctx, s.p.within(latency)) }
	b, err := reached(top)
	if err == nil && math.IsNaN(b) { // some range has no cascade at all, and planning returns which
		_, err = s.once(ctx, s.p.within(top))
	}
	if err == nil && (math.IsNaN(b) || s.p.misses(b)) {
		err = s.p.short(b)
	}
	if err == nil {
		low, least, err = between(low, top, func(latency time.Duration) (bool, error) {
			b, err := reached(latency)
			return !math.IsNaN(b) && !s.p.misses(b), err
		})
	}
	return low, least, top, err
}

// bisectLatency narrows an interval of latencies, of which the lower fails and the upper holds, until their ratio
// is at most latencyStep.
func between(fails, holds time.Duration, at func(time.Duration) (bool, error)) (time.Duration, time.Duration, error) {
	for float64(holds) > latencyStep*float64(fails) {
		mid := time.Duration(math.Sqrt(float64(fails) * float64(holds)))
		ok, err := at(mid)
		if err != nil {
			return fails, holds, err
		}
		if ok {
			holds = mid
		} else {
			fails = mid
		}
	}
	return fails, holds, nil
}

// isInfeasible reports whether an error says that there is no plan.
func none(err error) bool {
	_, ok := errors.AsType[*Infeasible](err)
	return ok
}

// maxTailLatency returns the longest tail latency of all gears.
func (out *Outcome) worst() time.Duration {
	w := time.Duration(0)
	for r := range out.Gears {
		w = max(w, out.Gears[r].Trial.Latency)
	}
	return w
}

// latencyExtremes returns a latency below all plans, in which one sample passes its fastest model, and one above
// all: maxLatencyFactor times the largest batches of all models.
func (p *Problem) extremes() (low, high time.Duration) {
	low = math.MaxInt64
	for m := range p.Models {
		low = min(low, p.Models[m].Times[0])
		longest := slices.Max(p.Models[m].Times)
		for k := range p.Kinds {
			if times := p.Models[m].On[k].Times; len(times) > 0 {
				longest = max(longest, slices.Max(times))
			}
		}
		high += slowest * longest
		if p.Blocks != nil && p.Blocks.Models[m].NumBlocks() > 1 {
			if t, ok := p.Blocks.Fastest(m, 1); ok {
				low = min(low, t)
			}
		}
	}
	return low, high
}
