package gear

import (
	"context"
	"errors"
	"fmt"
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
	solver milp.Solver
	all    []Cascade // over the models that are usable
	usable []bool
	runs   int
}

// with is the problem under another SLO or on other devices.
func (s *search) with(slo time.Duration, devices int) *Problem {
	p := *s.p
	p.SLO, p.Devices = slo, devices
	return &p
}

// cascades lists the cascades of a problem and their work.
func (s *search) cascades(p *Problem) (list []Cascade, work [][]float64, err error) {
	usable := p.usable()
	if !slices.Contains(usable, true) {
		return nil, nil, &Infeasible{NoneUsable: true}
	}
	if !slices.Equal(usable, s.usable) {
		s.all, s.usable = Enumerate(p.Planned, p.Grid, usable), usable
	}
	if list = p.inTime(s.all); len(list) == 0 {
		return nil, nil, &Infeasible{NoneInTime: true}
	}
	return list, p.works(list), nil
}

// relaxed is the bound on the weighted accuracy; NaN where a range cannot be
// served at all.
func (s *search) relaxed(ctx context.Context, p *Problem) (float64, error) {
	list, work, err := s.cascades(p)
	if _, ok := errors.AsType[*Infeasible](err); ok {
		return math.NaN(), nil
	}
	if err != nil {
		return 0, err
	}
	bounds, err := p.bounds(ctx, list, work, s.solver)
	if err != nil {
		return 0, err
	}
	return p.weighted(bounds), nil
}

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
	most := s.p.Devices
	least, high := 1, most
	for least < high {
		mid := (least + high) / 2
		b, err := s.relaxed(ctx, s.with(s.p.SLO, mid))
		if err != nil {
			return nil, err
		}
		if b >= s.p.Target {
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
		if _, ok := errors.AsType[*Infeasible](err); !ok {
			return nil, err
		}
		last = err
	}
	return nil, last
}

// Of the search for the least latency: how close it comes, and how long a
// latency can be, in times that all models take for their largest batches.
const (
	latencyStep = 1.05
	boundStep   = 1.02
	longest     = 20
)

// fastest finds the least latency that every range keeps while the weighted
// accuracy reaches the target: a multiple-choice knapsack (a cascade per range,
// accuracy weighted by the range's share of the requests) whose objective is the
// worst range's tail. For a given latency every range takes the most accurate
// cascade that keeps it, so that the least latency comes from bisection; where
// the relaxation falls short of the target, nothing is simulated.
func (s *search) fastest(ctx context.Context) (*Outcome, error) {
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for m := range s.p.Models {
		low = min(low, s.p.Models[m].Times[0])
		high += longest * slices.Max(s.p.Models[m].Times)
	}
	b, err := s.relaxed(ctx, s.with(high, s.p.Devices))
	if err != nil {
		return nil, err
	}
	if !(b >= s.p.Target) {
		if math.IsNaN(b) { // some range has no cascade at all: that is the reason
			if _, err := s.once(ctx, s.with(high, s.p.Devices)); err != nil {
				return nil, err
			}
		}
		return nil, s.p.short(b)
	}
	top := high
	for float64(high) > boundStep*float64(low) {
		mid := time.Duration(math.Sqrt(float64(low) * float64(high)))
		b, err := s.relaxed(ctx, s.with(mid, s.p.Devices))
		if err != nil {
			return nil, err
		}
		if b >= s.p.Target {
			high = mid
		} else {
			low = mid
		}
	}
	bound := low
	var best *Outcome
	var last error
	fails, next := low, 2*high
	for best == nil || float64(best.worst()) > latencyStep*float64(fails) {
		next = min(next, top)
		out, err := s.once(ctx, s.with(next, s.p.Devices))
		switch _, inf := errors.AsType[*Infeasible](err); {
		case err == nil:
			best = out
		case !inf:
			return nil, err
		case next == top:
			return nil, err
		default:
			fails, last = next, err
		}
		if best == nil {
			next *= 2
		} else {
			next = time.Duration(math.Sqrt(float64(fails) * float64(best.worst())))
		}
	}
	if best == nil {
		return nil, last
	}
	best.Value, best.ValueBound = best.worst().Seconds()*1e3, bound.Seconds()*1e3
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

// once plans for the most accuracy under an SLO; with a target, that much at
// least.
func (s *search) once(ctx context.Context, p *Problem) (*Outcome, error) {
	list, work, err := s.cascades(p)
	if err != nil {
		return nil, err
	}
	bounds, err := p.bounds(ctx, list, work, s.solver)
	if err != nil {
		return nil, err
	}
	if b := p.weighted(bounds); b < p.Target {
		return nil, p.short(b)
	}
	var out *Outcome
	if s.o.Algorithm == EM {
		out, err = p.solveEM(ctx, list, work, s.o)
		if err == nil && out.Accuracy < p.Target {
			err = &Infeasible{Target: p.Target, Best: out.Accuracy}
		}
	} else {
		out, err = p.solveExact(ctx, list, work, s.o)
	}
	if err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	s.runs += out.Runs
	out.Problem, out.Runs, out.Cascades, out.Goal = p, s.runs, len(s.all), s.p.Goal()
	for r := range out.Gears {
		out.Gears[r].Bound = max(bounds[r], 0)
	}
	out.Bound = p.weighted(bounds)
	out.Value, out.ValueBound = out.Accuracy, out.Bound
	return out, nil
}

// more is the bound with one more device.
func (s *search) more(ctx context.Context, p *Problem) (float64, error) {
	b, err := s.relaxed(ctx, s.with(p.SLO, p.Devices+1))
	return max(b, 0), err
}
