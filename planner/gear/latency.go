package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Of the search for the least latency: how close it comes, how long a latency can be, in
// times that all models take for their largest batches, and by how much a design has to
// be quicker than the plan before.
const (
	latencyStep = 1.05
	boundStep   = 1.02
	slowest     = 20
	quickerBy   = 1.03
)

// fastest finds the least latency that every range keeps while the weighted
// accuracy reaches the target: a multiple-choice knapsack (a cascade per range,
// accuracy weighted by the range's share of the requests) whose objective is the
// worst range's tail. Where the relaxation falls short of the target, nothing is
// simulated.
func (s *search) fastest(ctx context.Context) (*Outcome, error) {
	low, least, top, err := (quickest{s}).latencies(ctx)
	if err != nil {
		return nil, err
	}
	best, err := (quickest{s.alike()}).whole(ctx, low, top)
	if err == nil && (best == nil || s.p.Blocks != nil) {
		best, err = (quickest{s}).bisect(ctx, best, low, least, top)
	}
	if err != nil {
		return nil, err
	}
	bounds, total, err := s.boundsAt(ctx, s.with(best.Problem.SLO, s.p.Devices))
	if err != nil {
		return nil, err
	}
	best.bound(bounds, total)
	best.Value, best.ValueBound = best.worst().Seconds()*1e3, low.Seconds()*1e3
	return best, nil
}

// quickest is the search for the least latency.
type quickest struct{ *search }

// latencies are one at which the relaxation falls short of the target, one just above at
// which it reaches it, and the longest that is looked at.
func (s quickest) latencies(ctx context.Context) (low, least, top time.Duration, err error) {
	low, top = s.p.extremes()
	reached := func(latency time.Duration) (float64, error) { return s.relaxed(ctx, s.with(latency, s.p.Devices)) }
	b, err := reached(top)
	if err == nil && math.IsNaN(b) { // some range has no cascade at all: that is the reason
		_, err = s.once(ctx, s.with(top, s.p.Devices))
	}
	if err == nil && (math.IsNaN(b) || s.p.misses(b)) {
		err = s.p.short(b)
	}
	least = top
	for err == nil && float64(least) > boundStep*float64(low) {
		mid := between(low, least)
		if b, err = reached(mid); !math.IsNaN(b) && !s.p.misses(b) {
			least = mid
		} else {
			low = mid
		}
	}
	return low, least, top, err
}

func between(low, high time.Duration) time.Duration {
	return time.Duration(math.Sqrt(float64(low) * float64(high)))
}

// bisect plans anew for every latency that it tries, for less than that of a plan, if
// there is one.
func (s quickest) bisect(ctx context.Context, best *Outcome, fails, next, top time.Duration) (*Outcome, error) {
	if next *= 2; best != nil {
		next = between(fails, best.worst())
	}
	for best == nil || float64(best.worst()) > latencyStep*float64(fails) {
		next = min(next, top)
		out, err := s.once(ctx, s.with(next, s.p.Devices))
		switch _, inf := errors.AsType[*Infeasible](err); {
		case err == nil:
			best = out
		case !inf || next == top:
			return nil, err
		default:
			fails = next
		}
		if best == nil {
			next *= 2
		} else {
			next = between(fails, best.worst())
		}
	}
	return best, nil
}

// worst is the longest tail latency of all gears.
func (out *Outcome) worst() time.Duration {
	w := time.Duration(0)
	for r := range out.Gears {
		w = max(w, out.Gears[r].Trial.Latency)
	}
	return w
}

// Batches are tried that are this factor shorter, from the latency of the plan before.
const shorter = 1.4

// whole plans with whole models, on designs whose batches get shorter: with long
// ones an expensive model's queue costs more time than it saves work. nil: no design
// reaches the target.
func (s quickest) whole(ctx context.Context, low, top time.Duration) (best *Outcome, err error) {
	tried := map[string]bool{}
	try := func(slo, longest time.Duration) error {
		p := s.with(slo, s.p.Devices)
		p.longest = longest
		list, err := s.designs(ctx, p)
		if _, none := errors.AsType[*Infeasible](err); none {
			return nil
		}
		if err != nil {
			return err
		}
		for _, d := range list {
			batch, _ := speedsOf(d.p)
			if name := fmt.Sprint(d.out.Placement.describe(), d.out.Configs, batch); !tried[name] {
				tried[name] = true
				out, err := s.on(ctx, d, top, best)
				if err != nil {
					return err
				}
				if out != nil {
					best = out
				}
			}
		}
		return nil
	}
	for longest := min(3*low, top); best == nil; longest = min(2*longest, top) {
		if err := try(min(longest*5/4, top), longest); err != nil {
			return nil, err
		}
		if longest == top {
			break
		}
	}
	if best == nil {
		return nil, nil
	}
	for longest := best.worst(); longest > s.p.shortest(); longest = time.Duration(float64(longest) / shorter) {
		if err := try(best.worst(), longest); err != nil {
			return nil, err
		}
	}
	return best, nil
}

func (pl *Placement) describe() string {
	if pl == nil {
		return ""
	}
	return fmt.Sprint(pl.Sets, pl.Counts)
}

// extremes are latencies below and above those that are looked for: of a sample where
// it passes fastest, and many times those of the largest batches.
func (p *Problem) extremes() (low, high time.Duration) {
	low = math.MaxInt64
	for m := range p.Models {
		low = min(low, p.Models[m].Times[0])
		longest := slices.Max(p.Models[m].Times)
		for k := range p.Kinds {
			if times := variantOf(p, m, k).Times; len(times) > 0 {
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
