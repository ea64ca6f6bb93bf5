package gear

import (
	"context"
	"math"
	"slices"
	"time"

	"inferplan/solver/milp"
)

// Goals: what is optimised follows from what is asked for.
const (
	MostAccurate  = "accuracy" // an SLO on latency
	LeastLatency  = "latency"  // an SLO on accuracy
	FewestDevices = "gpus"     // both
)

// Goal is what a problem asks to optimise.
func (p *Problem) Goal() string {
	switch {
	case p.Target == 0:
		return MostAccurate
	case p.SLO == 0:
		return LeastLatency
	}
	return FewestDevices
}

// search holds what solves of one problem with other SLOs or devices share.
type search struct {
	p      *Problem
	o      *Options
	solver milp.Solver // of linear programs
	known  *catalogue
	kinds  *ways // of the SLO looked at last

	early      *Outcome // nil: none
	left       *int     // requests that proofs may yet simulate; nil: none is asked for
	runs       int
	enumerated int   // cascades, of the SLO with the most
	lax        *ways // with as much time as anything takes
}

// within is the problem under another SLO.
func (p *Problem) within(slo time.Duration) *Problem {
	q := *p
	q.SLO = slo
	return &q
}

// on is the problem on numbers of devices by kind.
func (p *Problem) on(n []int) *Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	for k := range q.Kinds {
		q.Kinds[k].Devices = n[k]
	}
	return &q
}

// relaxed is the bound on the weighted accuracy; NaN where a range cannot be
// served at all.
func (s *search) relaxed(ctx context.Context, p *Problem) (float64, error) {
	_, total, err := s.boundsAt(ctx, p)
	if none(err) {
		return math.NaN(), nil
	}
	return total + reaches, err
}

// atLeast is the larger of two bounds, of which the first may be none (NaN) and the
// second below 0.
func atLeast(bound, other float64) float64 {
	if other >= 0 && !(bound >= other) {
		return other
	}
	return bound
}

// sumsRound is more than sums of weighted accuracies round.
const sumsRound = 1e-12

// misses tells whether an accuracy is below the target.
func (p *Problem) misses(accuracy float64) bool { return accuracy < p.Target-sumsRound }

func (p *Problem) weighted(list []float64) float64 {
	total := 0.0
	for r := range list {
		total += p.Weights[r] * list[r]
	}
	return total
}

// short is the error of a target that is out of reach.
func (p *Problem) short(best float64) *Infeasible {
	return &Infeasible{Target: p.Target, Best: max(0, best), Fluid: true}
}
