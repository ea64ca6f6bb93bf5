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

// Goal returns what the problem optimises.
func (p *Problem) Goal() string {
	switch {
	case p.Target == 0:
		return MostAccurate
	case p.SLO == 0:
		return LeastLatency
	}
	return FewestDevices
}

// planSearch holds what the solves of one problem with different SLOs or devices share.
type search struct {
	p      *Problem
	o      *Options
	solver milp.Solver // for linear programs
	known  *catalogue
	kinds  *ways // of the last SLO

	early      *Outcome // early plan; nil if there is none
	left       *int     // number of requests that proofs may still simulate; nil if no proof is wanted
	runs       int      // number of simulated runs
	enumerated int      // largest number of cascades enumerated for any SLO
	lax        *ways    // inputs without an SLO, for bounds
}

// withSLO returns the problem under another SLO.
func (p *Problem) within(slo time.Duration) *Problem {
	q := *p
	q.SLO = slo
	return &q
}

// withDevices returns the problem with other numbers of devices, by kind.
func (p *Problem) on(n []int) *Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	for k := range q.Kinds {
		q.Kinds[k].Devices = n[k]
	}
	return &q
}

// relaxedAccuracy returns the bound on the weighted accuracy, or NaN if a range cannot be served at all.
func (s *search) relaxed(ctx context.Context, p *Problem) (float64, error) {
	_, total, err := s.boundsAt(ctx, p)
	if none(err) {
		return math.NaN(), nil
	}
	return total + reaches, err
}

// largerBound returns the larger of two bounds. The first may be NaN, and the second below 0, if they are not
// known.
func atLeast(bound, other float64) float64 {
	if other >= 0 && !(bound >= other) {
		return other
	}
	return bound
}

// sumTolerance is more than the rounding of sums of weighted accuracies.
const sumsRound = 1e-12

// missesTarget reports whether an accuracy is below the target.
func (p *Problem) misses(accuracy float64) bool { return accuracy < p.Target-sumsRound }

// weightedSum returns the sum of values of the ranges, by weight.
func (p *Problem) weighted(list []float64) float64 {
	total := 0.0
	for r := range list {
		total += p.Weights[r] * list[r]
	}
	return total
}

// targetError returns the error of a target that the relaxation does not reach.
func (p *Problem) short(best float64) *Infeasible {
	return &Infeasible{Target: p.Target, Best: max(0, best), Fluid: true}
}
