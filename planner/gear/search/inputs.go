package search

import (
	"cmp"
	"context"
	"math"
	"time"

	"inferplan/planner/gear/bounds"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

// planInputs holds the two spaces in which a problem is planned: the space of whole models, and the one with members in stages.
type planInputs struct {
	problem     *cascades.Problem
	wholeModels *planspace.Space
	wholeError  error // why no cascade of whole models is in time; nil if some is
	withStages  *planspace.Space
	chains      []*planspace.Chain
	stagedTimes []time.Duration // by member: least time of a sample in stages; 0 if it cannot be cut
}

// planInputsFor returns what planning a problem starts from: its chains (members of the family in stages) and the
// spaces of plans (cascades, device times, sets of models on devices) of whole models and with stages. Inputs of the
// last SLO are used again, because numbers of devices do not change them. If no cascade is in time, whole or in stages,
// it returns the error.
func (s *planSearch) planInputsFor(ctx context.Context, p *cascades.Problem) (*planInputs, error) {
	if inputs := s.lastInputs; inputs != nil && inputs.problem.SLO == p.SLO {
		return inputs.forProblem(p), nil
	}
	chains, stagedTimes, err := planspace.EnumerateChains(p)
	if err != nil {
		return nil, err
	}
	inputs := &planInputs{problem: p, chains: chains, stagedTimes: stagedTimes}
	// If whole models have no plan, members in stages may have one.
	if inputs.wholeModels, inputs.wholeError = planspace.WholeModelSpace(ctx, p, s.solver, s.cache); inputs.wholeError != nil && (len(chains) == 0 || !cascades.IsInfeasible(inputs.wholeError)) {
		return nil, inputs.wholeError
	}
	if inputs.withStages, err = inputs.wholeModels.WithStages(ctx, p, planspace.UndominatedChains(chains, p.SLO), stagedTimes); err != nil {
		return nil, cmp.Or(inputs.wholeError, err)
	}
	s.lastInputs, s.enumeratedCount = inputs, max(s.enumeratedCount, inputs.withStages.EnumeratedCount)
	return inputs.forProblem(p), nil
}

// forProblem returns the inputs for a problem with other numbers of devices.
func (inputs *planInputs) forProblem(p *cascades.Problem) *planInputs {
	adapted := *inputs
	adapted.problem, adapted.wholeModels, adapted.withStages = p, inputs.wholeModels.ForProblem(p), inputs.withStages.ForProblem(p)
	return &adapted
}

// boundSpace returns the space of plans that bounds are computed over. If every range of rates must keep the SLO, it is
// that of the inputs with stages. If all requests together must keep it, single ones may be late: the space then has
// all cascades with any latency, with the least share of late requests of each. A range then uses no cascade that makes
// more of all requests late than the percentile allows.
func (s *planSearch) boundSpace(ctx context.Context, p *cascades.Problem, inputs *planInputs) (*planspace.Space, error) {
	if !p.OverRequests {
		return inputs.withStages, nil
	}

	// Make the space without an SLO once: its SLO is a latency that no plan exceeds. planInputsFor replaces lastInputs, which
	// later plans with the real SLO use again, so they are put back.
	if s.laxInputs == nil {
		laxProblem := *s.problem
		_, laxProblem.SLO = laxProblem.LatencyExtremes()
		lastInputs := s.lastInputs
		s.lastInputs = nil
		laxInputs, err := s.planInputsFor(ctx, &laxProblem)
		if s.lastInputs = lastInputs; err != nil {
			return nil, err
		}
		space := *laxInputs.withStages
		// The share of late requests is by the SLO that is asked for.
		tight := *space.Problem
		tight.SLO = p.SLO
		for i := range space.Cascades {
			space.MinLateShares = append(space.MinLateShares, cascades.MinLateShare(&tight, &space.Cascades[i]))
		}
		laxInputs.withStages, s.laxInputs = &space, laxInputs
	}
	return s.laxInputs.forProblem(p).withStages, nil
}

// computeBounds returns the accuracies that no plan of a problem exceeds, by range of rates and over all ranges by
// weight. chainUse is the share of the samples that each chain (member in stages) carries in the linear programs within
// the SLO, which shows the chains that are worth placing.
func (s *planSearch) computeBounds(ctx context.Context, p *cascades.Problem, inputs *planInputs) (rangeBounds []float64, total float64, chainUse []float64, err error) {
	space, err := s.boundSpace(ctx, p, inputs)
	if err != nil {
		return nil, 0, nil, err
	}
	rangeBounds, chainUse, err = space.RangeBounds(ctx)
	if err == nil && space != inputs.withStages && len(inputs.chains) > 0 {
		_, chainUse, err = inputs.withStages.RangeBounds(ctx)
	}
	if total = p.WeightedSum(rangeBounds); err != nil || !p.OverRequests {
		return rangeBounds, total, chainUse, err
	}

	// With an SLO over all requests ranges share the late ones, which lowers both bounds.
	pool, err := bounds.PoolDevices(ctx, p, inputs.withStages, space) // all devices as one budget of work
	if err != nil {
		return nil, 0, nil, err
	}
	total = pool.BoundOverRequests(rangeBounds)
	if p.SimulatesMeasured() { // a plan on measured rates need not hold the highest rate
		total = bounds.LargerBound(total, pool.MeasuredBound())
	}
	return rangeBounds, total, chainUse, nil
}

// boundsFor returns the accuracies that no plan of a problem exceeds, by range and over all ranges.
func (s *planSearch) boundsFor(ctx context.Context, p *cascades.Problem) (bounds []float64, total float64, err error) {
	inputs, err := s.planInputsFor(ctx, p)
	if err == nil {
		bounds, total, _, err = s.computeBounds(ctx, p, inputs)
	}
	return bounds, total, err
}

// relaxedAccuracy returns the accuracy by weight that no plan of a problem exceeds, with a little tolerance, or
// NaN if a range of rates cannot be served at all.
func (s *planSearch) relaxedAccuracy(ctx context.Context, p *cascades.Problem) (float64, error) {
	_, total, err := s.boundsFor(ctx, p)
	if cascades.IsInfeasible(err) {
		return math.NaN(), nil
	}
	return total + cascades.TargetTolerance, err
}
