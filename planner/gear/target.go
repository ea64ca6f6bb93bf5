package gear

import (
	"context"
	"math"
	"slices"
	"time"

	"inferplan/solver/milp"
)

// The goals. What is optimised follows from what the workload's SLO names.
const (
	MostAccurate  = "accuracy" // the SLO names a latency
	LeastLatency  = "latency"  // the SLO names an accuracy
	FewestDevices = "gpus"     // the SLO names both
)

// Goal returns what the problem optimises, which is what its SLO leaves open: without a target accuracy the
// accuracy, without a latency the latency, and with both the devices.
func (p *Problem) Goal() string {
	switch {
	case p.TargetAccuracy == 0:
		return MostAccurate
	case p.SLO == 0:
		return LeastLatency
	}
	return FewestDevices
}

// planSearch holds what the solves of one problem with different SLOs or devices share.
type planSearch struct {
	problem    *Problem
	options    *Options
	solver     milp.Solver // for linear programs
	cache      cascadeCache
	history    *trialHistory
	lastInputs *planInputs // of the last SLO

	earlyPlan       *Outcome    // early plan; nil if there is none
	proofBudget     *int        // number of requests that proofs may still simulate; nil if no proof is wanted
	enumeratedCount int         // largest number of cascades enumerated for any SLO
	laxInputs       *planInputs // inputs without an SLO, for bounds
}

// withSLO returns the problem under another SLO.
func (p *Problem) withSLO(slo time.Duration) *Problem {
	q := *p
	q.SLO = slo
	return &q
}

// withDevices returns the problem with other numbers of devices, by kind.
func (p *Problem) withDevices(n []int) *Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	for k := range q.Kinds {
		q.Kinds[k].Devices = n[k]
	}
	return &q
}

// relaxedAccuracy returns the accuracy by weight that no plan of a problem exceeds, with a little tolerance, or
// NaN if a range of rates cannot be served at all.
func (s *planSearch) relaxedAccuracy(ctx context.Context, p *Problem) (float64, error) {
	_, total, err := s.boundsFor(ctx, p)
	if isInfeasible(err) {
		return math.NaN(), nil
	}
	return total + targetTolerance, err
}

// largerBound returns the larger of two bounds. The first may be NaN, and the second below 0, if they are not
// known.
func largerBound(bound, other float64) float64 {
	if other >= 0 && !(bound >= other) {
		return other
	}
	return bound
}

// sumTolerance is more than the rounding of sums of weighted accuracies.
const sumTolerance = 1e-12

// targetTolerance is the distance below the target at which a relaxation still counts as reaching it, because
// programs are only solved to that precision.
const targetTolerance = 1e-7

// missesTarget reports whether an accuracy is below the target.
func (p *Problem) missesTarget(accuracy float64) bool {
	return accuracy < p.TargetAccuracy-sumTolerance
}

// weightedSum returns the sum of values of the ranges, by weight.
func (p *Problem) weightedSum(list []float64) float64 {
	total := 0.0
	for r := range list {
		total += p.RangeWeights[r] * list[r]
	}
	return total
}

// targetError returns the error of a target that the relaxation does not reach.
func (p *Problem) targetError(bestAccuracy float64) *InfeasibleError {
	return &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: max(0, bestAccuracy), ByRelaxation: true}
}
