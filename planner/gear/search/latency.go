package search

import (
	"context"
	"math"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
)

// Parameters of the search for the least latency: the ratio of latencies at which it ends, and the placements that
// are tried for each latency.
const (
	latencyStep       = 1.02
	latencyPlacements = 6
)

// planFastest returns a plan with the least latency that every range of rates keeps while the weighted accuracy reaches
// the target. It makes the most accurate plans within latencies. Latencies at which the relaxation (linear programs
// that no plan exceeds) misses the target are not simulated.
//
//  1. Latencies rise until there is a plan. The first is twice the least latency of the relaxation, and each next one
//     is twice as long. If the latency of a plan of less accuracy is known (startLatency), the first is that latency,
//     and the factors between latencies grow from latencyStep to 2.
//  2. Between the last latency without a plan and that one, bisection finds the least. Of the plans that are found, the
//     one whose own tail latency is the shortest counts.
//
// If ctx ends after a plan was found, it returns the fastest so far. Value and bound are in milliseconds.
func (s *planSearch) planFastest(ctx context.Context) (*trials.Plan, error) {
	bound, reachable, maxLatency, err := s.latencyBracket(ctx)
	if err != nil {
		return nil, err
	}

	// Step 1: raise the latency. low is the last latency without a plan.
	low, latency, factor := bound, 2*reachable, 2.
	if start := s.options.startLatency; start > reachable {
		low, latency, factor = start, start, latencyStep
	}
	var best *trials.Plan
	for best == nil && err == nil {
		latency = min(latency, maxLatency)
		best, err = s.planMostAccurate(ctx, s.problem.WithSLO(latency))
		if canRise := latency < maxLatency; canRise && cascades.IsInfeasible(err) {
			low, err = latency, nil
		}
		latency, factor = time.Duration(factor*float64(latency)), min(2, factor*factor) // steps grow, up to doubling
	}

	// Step 2: bisect.
	if err == nil {
		_, _, err = bisectLatency(low, best.Problem.SLO, func(latency time.Duration) (bool, error) {
			plan, err := s.planMostAccurate(ctx, s.problem.WithSLO(latency))
			if err == nil && plan.MaxTailLatency() < best.MaxTailLatency() {
				best = plan
			}
			if cascades.IsInfeasible(err) {
				return false, nil
			}
			return true, err
		})
	}
	if best, err = trials.PlanOrError(ctx, best, err); err != nil {
		return nil, err
	}

	// Set value and bounds.
	bounds, total, err := s.boundsFor(context.WithoutCancel(ctx), s.problem.WithSLO(best.Problem.SLO))
	if err != nil {
		return nil, err
	}
	best.SetBounds(bounds, total)
	best.RunCount = s.history.RunCount
	best.Value = best.MaxTailLatency().Seconds() * 1e3
	best.ValueBound = min(bound.Seconds()*1e3, best.Value)
	return best, nil
}

// latencyBracket returns the ends of the search for the least latency: low, at which the bound on the accuracy (of the
// linear programs, which no plan exceeds) misses the target, reachable, just above it, at which the bound reaches the
// target, and maxLatency, the longest that is tried. It returns an InfeasibleError if the target is out of reach at any
// latency.
func (s *planSearch) latencyBracket(ctx context.Context) (low, reachable, maxLatency time.Duration, err error) {
	low, maxLatency = s.problem.LatencyExtremes()
	relaxedAt := func(latency time.Duration) (float64, error) {
		return s.relaxedAccuracy(ctx, s.problem.WithSLO(latency))
	}
	bound, err := relaxedAt(maxLatency)
	if err == nil && math.IsNaN(bound) { // some range has no cascade at all, and planning returns which
		_, err = s.planMostAccurate(ctx, s.problem.WithSLO(maxLatency))
	}
	if err == nil && (math.IsNaN(bound) || s.problem.MissesTarget(bound)) {
		err = s.problem.TargetError(bound)
	}
	if err == nil {
		low, reachable, err = bisectLatency(low, maxLatency, func(latency time.Duration) (bool, error) {
			bound, err := relaxedAt(latency)
			return !math.IsNaN(bound) && !s.problem.MissesTarget(bound), err
		})
	}
	return low, reachable, maxLatency, err
}

// bisectLatency narrows an interval of latencies, of which the lower end fails and the upper holds, until their ratio
// is at most latencyStep, and returns both ends. The middle is geometric, because the ratio counts. holdsAt reports
// whether a latency holds. If it returns an error, the search ends with it and the ends so far.
func bisectLatency(failing, holding time.Duration, holdsAt func(time.Duration) (bool, error)) (time.Duration, time.Duration, error) {
	for float64(holding) > latencyStep*float64(failing) {
		middle := time.Duration(math.Sqrt(float64(failing) * float64(holding)))
		ok, err := holdsAt(middle)
		if err != nil {
			return failing, holding, err
		}
		if ok {
			holding = middle
		} else {
			failing = middle
		}
	}
	return failing, holding, nil
}
