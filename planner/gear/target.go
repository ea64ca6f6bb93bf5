package gear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
	solver milp.Solver // of linear programs, for several kinds of devices
	known  catalogue
	kinds  *ways // of the SLO looked at last, on several kinds

	runs       int
	enumerated int       // cascades, of the SLO with the most
	free       []Cascade // of all models that fit, however long they take
	lax        *ways     // with as much time as anything takes, on several kinds

	// Of the SLO looked at last: its cascades and their work.
	slo  time.Duration
	list []Cascade
	work [][]float64
}

// with is the problem under another SLO or on other devices.
func (s *search) with(slo time.Duration, devices int) *Problem {
	p := *s.p
	p.SLO, p.Devices = slo, devices
	return &p
}

// cascades lists the cascades of a problem and their work.
func (s *search) cascades(p *Problem) (list []Cascade, work [][]float64, err error) {
	if s.list != nil && s.slo == p.SLO {
		return s.list, s.work, nil
	}
	list, found, err := s.known.inTime(p, p.usable())
	if err != nil {
		return nil, nil, err
	}
	s.slo, s.list, s.work, s.enumerated = p.SLO, list, p.works(list), max(s.enumerated, found)
	return list, s.work, nil
}

// relaxed is the bound on the weighted accuracy; NaN where a range cannot be
// served at all.
func (s *search) relaxed(ctx context.Context, p *Problem) (float64, error) {
	_, total, err := s.boundsAt(ctx, p)
	if _, none := errors.AsType[*Infeasible](err); none {
		return math.NaN(), nil
	}
	if p.Mixed() {
		total += reaches
	}
	return total, err
}

// bounds are what no plan over the same thresholds exceeds, by range and over all.
// Where the SLO is for all requests together, also what cannot keep it may answer a
// few of them.
func (s *search) bounds(p *Problem, list []Cascade, work [][]float64) (bounds []float64, total float64) {
	if !p.Overall {
		bounds = relaxation{p}.bounds(list, work)
		return bounds, p.weighted(bounds)
	}
	if s.free == nil {
		fits := make([]bool, len(p.Models))
		for m := range fits {
			fits[m] = p.Memory == 0 || p.Models[m].Memory <= p.Memory
		}
		s.free = s.known.of(p, fits).list
	}
	bounds, total = relaxation{p}.laxBounds(s.free)
	switch {
	case p.climbs(): // neither one cascade for all rates nor a range need hold the highest
		total = atLeast(total, relaxation{p}.measuredBound(s.free))
	case p.shown(): // one cascade for all rates need not
		one := relaxation{p}.singleBound(s.free)
		total = atLeast(total, one)
		for r := range bounds {
			bounds[r] = atLeast(bounds[r], one)
		}
	}
	return bounds, total
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

// fewest finds the least number of devices that holds target and SLO. Below the
// number at which even the relaxation reaches the target there is none.
func (s *search) fewest(ctx context.Context) (*Outcome, error) {
	if s.p.Mixed() {
		return s.cheapest(ctx)
	}
	most := s.p.Devices
	least, high := 1, most
	for least < high {
		mid := (least + high) / 2
		b, err := s.relaxed(ctx, s.with(s.p.SLO, mid))
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(b) && !s.p.misses(b) {
			high = mid
		} else {
			least = mid + 1
		}
	}
	var last error
	for n := least; n <= most; n++ {
		out, err := s.once(ctx, s.with(s.p.SLO, n))
		if err == nil {
			out.Value, out.ValueBound, out.Proved = float64(n), float64(least), n == least
			return out, nil
		}
		inf, ok := errors.AsType[*Infeasible](err)
		if !ok {
			return nil, err
		}
		if last = err; inf.Fluid && n == least { // not on any placement, even if devices never wait
			least++
		}
	}
	return nil, last
}

// once plans for the most accuracy under an SLO; with a target, that much at
// least.
func (s *search) once(ctx context.Context, p *Problem) (*Outcome, error) {
	if p.Mixed() {
		return s.onKinds(ctx, p)
	}
	list, work, err := s.cascades(p)
	if err != nil {
		return nil, err
	}
	bounds, total := s.bounds(p, list, work)
	if p.misses(total) {
		return nil, p.short(total)
	}
	out, err := (&exact{p, list, work, s.o}).solve(ctx)
	if err != nil || !s.o.Any || p.Target > 0 {
		out, err = s.single(ctx, p, list, out, err)
	}
	if err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	s.runs += out.Runs
	if out, err = s.climbed(ctx, out, list); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if p.misses(out.Accuracy) { // a search that was cut short says nothing of what can be reached
		return nil, fmt.Errorf("planning gears: %w", cmp.Or[error](ctx.Err(), &Infeasible{Target: p.Target, Best: out.Accuracy}))
	}
	out.Runs, out.Cascades, out.Goal = s.runs, s.enumerated, s.p.Goal()
	out.bound(bounds, total)
	out.valued()
	return out, nil
}

// more bounds the accuracy with one more device.
func (s *search) more(ctx context.Context, out *Outcome) error {
	p := s.with(s.p.SLO, s.p.Devices+1)
	p.Overall = out.Problem.Overall
	b, err := s.relaxed(ctx, p)
	out.MoreOf = []float64{b}
	return err
}
