package gear

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Of the search for the least latency: how close it comes, how long a latency can be, in
// times that all models take for their largest batches, by how much a design has to be
// quicker than the plan before, how many further placements are tried on one kind, and how
// many for each latency on several.
const (
	latencyStep       = 1.05
	boundStep         = 1.02
	slowest           = 20
	quickerBy         = 1.03
	furtherPlacements = 10
	latencyPlacements = 6
)

// fastest finds the least latency that every range keeps while the weighted
// accuracy reaches the target: a multiple-choice knapsack (a cascade per range,
// accuracy weighted by the range's share of the requests) whose objective is the
// worst range's tail. Where the relaxation falls short of the target, nothing is
// simulated.
func (s *search) fastest(ctx context.Context) (*Outcome, error) {
	low, least, top, err := s.latencies(ctx)
	if err != nil {
		return nil, err
	}
	q := &quickest{search: s.alike(s.p), top: top, contests: map[time.Duration]*contest{}}
	best, err := q.whole(ctx, low)
	if q.search != s {
		s.runs += q.runs
	}
	if err == nil && (best == nil || s.p.Mixed()) {
		best, err = s.bisect(ctx, best, low, least, top)
	}
	if best, err = kept(ctx, best, err); err != nil {
		return nil, err
	}
	bounds, total, err := s.boundsAt(context.WithoutCancel(ctx), s.with(best.Problem.SLO, s.p.Devices))
	if err != nil {
		return nil, err
	}
	best.bound(bounds, total)
	best.Runs = s.runs
	best.Value, best.ValueBound = best.worst().Seconds()*1e3, low.Seconds()*1e3
	return best, nil
}

// quickest is the search for the least latency.
type quickest struct {
	*search
	top      time.Duration              // longest that is looked at
	contests map[time.Duration]*contest // by rung
}

// latencies are one at which the relaxation falls short of the target, one just above at
// which it reaches it, and the longest that is looked at.
func (s *search) latencies(ctx context.Context) (low, least, top time.Duration, err error) {
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

// bisect plans anew for every latency that it tries. Where there is a plan, it starts from
// a tenth above what that was made for, and goes on from there: other batches come of it,
// and a plan may well keep less than it was made for. With an error comes the best so far.
func (s *search) bisect(ctx context.Context, best *Outcome, fails, next, top time.Duration) (*Outcome, error) {
	var holds, start time.Duration
	if next *= 2; best != nil {
		start = best.Problem.SLO
		next = start * 11 / 10
	}
	for holds == 0 || float64(holds) > boundStep*float64(fails) {
		next = min(next, top)
		out, err := s.once(ctx, s.with(next, s.p.Devices))
		switch _, inf := errors.AsType[*Infeasible](err); {
		case err == nil:
			if holds = next; best == nil || out.worst() < best.worst() {
				best = out
			}
		case !inf || best == nil && next == top:
			return best, err
		case best != nil && holds == 0:
			holds = next
		default:
			fails = next
		}
		switch {
		case holds == 0:
			next *= 2
		case fails < start && start < holds:
			next = start
		default:
			next = between(fails, holds)
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

// rungStep is the factor from rung to rung: batches follow the latency in rungs only.
const rungStep = 1.25

// rung is the longest batch that is run where a latency is to be kept.
func rung(latency time.Duration) time.Duration {
	n := math.Floor(math.Log(latency.Seconds())/math.Log(rungStep) + 1e-9)
	return time.Duration(math.Pow(rungStep, n) * float64(time.Second))
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(min(s, 1e6) * 1e9)) }

// whole plans with whole models. It estimates first, so that few options are run at all:
// those that would be taken at the latency that seems possible, until all that are taken
// have been run. nil: no plan.
func (s *quickest) whole(ctx context.Context, low time.Duration) (*Outcome, error) {
	c, err := s.contest(ctx, rung(min(3*low, s.top)))
	if err != nil {
		return nil, err
	}
	if c, err = s.contest(ctx, rung(min(s.top, seconds(c.possible())))); err != nil {
		return nil, err
	}
	c, err = s.descend(ctx, c)
	if err != nil {
		return nil, err
	}
	best, err := s.on(ctx, c, s.top.Seconds())
	if err != nil || best == nil {
		return nil, err
	}
	if s.p.Mixed() {
		return best, nil
	}
	return s.further(ctx, best)
}

// descend goes on to shorter batches, as batches must not be longer than the latency, and
// shorter ones may be better. One sample may take longer than batches may, so that a step
// down may change nothing yet.
func (s *quickest) descend(ctx context.Context, c *contest) (*contest, error) {
	latency, err := c.refine(ctx, s.top.Seconds())
	for longest := s.top; err == nil && latency <= s.top.Seconds(); {
		longest = rung(min(longest, c.rung) - 1)
		below, err := s.contest(ctx, longest)
		if err != nil {
			return nil, err
		}
		fits := latency >= c.rung.Seconds()
		if fits && below.possible() >= latency {
			break
		}
		less, err := below.refine(ctx, s.top.Seconds())
		if err != nil {
			return nil, err
		}
		if fits && less >= latency || less > s.top.Seconds() {
			break
		}
		c, latency = below, less
	}
	return c, err
}

// on is the plan of least latency of a contest; nil: none is within a limit.
func (s *quickest) on(ctx context.Context, c *contest, limit float64) (*Outcome, error) {
	for {
		latency, err := c.refine(ctx, limit)
		if err != nil || latency > limit {
			return nil, err
		}
		slo := max(seconds(latency), c.rung)
		kept, err := c.prove(ctx, latency, slo)
		if err != nil {
			return nil, err
		}
		if kept {
			return c.outcome(ctx, s, latency, slo)
		}
	}
}

// further tries other placements on identical devices, for less than a plan's latency.
func (s *quickest) further(ctx context.Context, best *Outcome) (*Outcome, error) {
	p := s.with(best.worst(), s.p.Devices)
	p.longest = rung(best.worst())
	list, err := s.designs(ctx, p, furtherPlacements)
	if _, none := errors.AsType[*Infeasible](err); none {
		return best, nil
	}
	for _, d := range list {
		if err != nil {
			break
		}
		c := s.of(d)
		if err = c.guess(ctx); err != nil {
			break
		}
		var out *Outcome
		if out, err = s.on(ctx, c, best.worst().Seconds()/quickerBy); out != nil {
			best = out
		}
	}
	return best, err
}

// of is the contest on a design, without options yet.
func (s *quickest) of(d *design) *contest {
	return &contest{design: d, total: &s.runs, target: s.p.Target, rung: d.longestBatch()}
}

// contest is the contest on the placement that seems best with batches of a length.
func (s *quickest) contest(ctx context.Context, longest time.Duration) (*contest, error) {
	if c := s.contests[longest]; c != nil {
		return c, nil
	}
	p := s.with(time.Duration(rungStep*float64(longest)), s.p.Devices)
	p.longest = longest
	list, err := s.designs(ctx, p, 1)
	if _, none := errors.AsType[*Infeasible](err); err != nil && !none {
		return nil, err
	}
	c := s.of(&design{p: p})
	if len(list) > 0 {
		c = s.of(list[0])
		for _, other := range s.contests { // a rung above may have no longer batches
			if other.rung == c.rung && other.sameAs(c.design) {
				s.contests[longest] = other
				return other, nil
			}
		}
		if err := c.guess(ctx); err != nil {
			return nil, err
		}
	}
	s.contests[longest] = c
	return c, nil
}

// extremes are latencies below and above those that are looked for: of a sample where
// it passes fastest, and many times those of the largest batches.
func (p *Problem) extremes() (low, high time.Duration) {
	low = math.MaxInt64
	for m := range p.Models {
		low = min(low, p.Models[m].Times[0])
		longest := slices.Max(p.Models[m].Times)
		for k := range p.Kinds {
			if times := p.variant(m, k).Times; len(times) > 0 {
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
