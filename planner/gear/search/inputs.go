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
// spaces of plans (cascades, device times, sets of models on devices) of whole models and with stages. Problems of one
// search differ in the SLO and in the numbers of devices, and these numbers change neither cascades nor times nor sets.
// So if the SLO is that of the last call, its inputs are used again. If no cascade is in time, whole or in stages, it
// returns the error.
func (s *planSearch) planInputsFor(ctx context.Context, p *cascades.Problem) (*planInputs, error) {
	if inputs := s.lastInputs; inputs != nil && inputs.problem.SLO == p.SLO {
		return inputs.forProblem(p), nil
	}
	chains, stagedTimes, err := planspace.EnumerateChains(p)
	if err != nil {
		return nil, err
	}
	inputs := &planInputs{problem: p, chains: chains, stagedTimes: stagedTimes}

	// If no cascade of whole models is in time, one of members in stages may be. Then the space of whole models has no cascades,
	// and WithStages lists those with chains.
	inputs.wholeModels, inputs.wholeError = planspace.WholeModelSpace(ctx, p, s.solver, s.cache)
	stagesMayHelp := len(chains) > 0 && cascades.IsInfeasible(inputs.wholeError)
	if inputs.wholeError != nil && !stagesMayHelp {
		return nil, inputs.wholeError
	}
	if inputs.withStages, err = inputs.wholeModels.WithStages(ctx, p, planspace.UndominatedChains(chains, p.SLO), stagedTimes); err != nil {
		return nil, cmp.Or(inputs.wholeError, err) // name the reason of whole models, if there is one
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
// that of the inputs with stages. If all requests together must keep it, a single request may be late: the space then
// has cascades of any latency. It notes the least share of late requests of each cascade, so that no range uses one
// that makes more of all requests late than the percentile allows.
func (s *planSearch) boundSpace(ctx context.Context, p *cascades.Problem, inputs *planInputs) (*planspace.Space, error) {
	if !p.OverRequests {
		return inputs.withStages, nil
	}

	// Make the space without an SLO once: as that of the whole problem with a latency as SLO that no plan exceeds.
	if s.laxInputs == nil {
		laxProblem := *s.problem
		_, longestLatency := laxProblem.LatencyExtremes()
		laxProblem.SLO = longestLatency

		// planInputsFor replaces lastInputs, which later plans with the real SLO use again. So they are put back.
		realInputs := s.lastInputs
		s.lastInputs = nil
		laxInputs, err := s.planInputsFor(ctx, &laxProblem)
		s.lastInputs = realInputs
		if err != nil {
			return nil, err
		}

		// The share of late requests is by the SLO that is asked for.
		space := *laxInputs.withStages
		tightProblem := *space.Problem
		tightProblem.SLO = p.SLO
		for i := range space.Cascades {
			space.MinLateShares = append(space.MinLateShares, cascades.MinLateShare(&tightProblem, &space.Cascades[i]))
		}
		laxInputs.withStages, s.laxInputs = &space, laxInputs
	}

	// The numbers of devices are those of p.
	return s.laxInputs.forProblem(p).withStages, nil
}

// computeBounds returns the accuracies that no plan of a problem exceeds, by range of rates and over all ranges by
// weight. chainUse is the share of the samples that each chain (member in stages) carries in the linear programs within
// the SLO, which shows the chains that are worth placing.
//
// There are two spaces. The bounds are over boundSpace, in which requests may be late if the SLO is over all of them.
// Chains are placed within the SLO, in inputs.withStages. With an SLO for every range the two are the same.
func (s *planSearch) computeBounds(ctx context.Context, p *cascades.Problem, inputs *planInputs) (rangeBounds []float64, total float64, chainUse []float64, err error) {
	space, err := s.boundSpace(ctx, p, inputs)
	if err != nil {
		return nil, 0, nil, err
	}
	rangeBounds, chainUse, err = space.RangeBounds(ctx)
	if err == nil && space != inputs.withStages && len(inputs.chains) > 0 {
		_, chainUse, err = inputs.withStages.RangeBounds(ctx) // by the chains that may be placed
	}
	total = p.WeightedSum(rangeBounds)
	if err != nil || !p.OverRequests {
		return rangeBounds, total, chainUse, err
	}

	// With an SLO over all requests ranges share the late ones, which lowers both bounds. On the pooled devices requests in time
	// cost what they do in inputs.withStages, and late ones what they do in space.
	pool, err := bounds.PoolDevices(ctx, p, inputs.withStages, space) // all devices as one budget of work
	if err != nil {
		return nil, 0, nil, err
	}
	total = pool.BoundOverRequests(rangeBounds)
	// That is of plans whose ranges hold their upper edges. A plan that is simulated on measured rates need not, so it may be more
	// accurate, up to the bound of such plans.
	if p.SimulatesMeasured() {
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
