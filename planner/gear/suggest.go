package gear

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Of the search for what would make an infeasible problem feasible: cascades
// tried, devices above what the work alone needs, rates and factors of the SLO.
const (
	cheapest  = 8
	moreTried = 6
	mostTimes = 4 // of the devices of the cluster, and someTried more, are tried at most
	someTried = 64
	rateSteps = 7
)

var longerSLOs = []float64{1.25, 1.5, 2, 3, 4, 6, 8, 12}

// suggestChanges completes the error of a problem that is infeasible: how many devices, what
// highest rate and what SLO would do, each by itself, as simulation shows of the
// cheapest cascades.
func (s *search) suggestChanges(ctx context.Context, err error) error {
	inf, ok := errors.AsType[*Infeasible](err)
	if !ok || inf.Target > 0 || s.o.Any {
		return err
	}
	if len(s.p.Kinds) > 1 {
		return err // which kind it should be more of is not said
	}
	s = s.alike(s.p)
	p := s.p
	if p.SLO == 0 {
		return err // the latency was free, too: only devices are missing
	}
	if inf.NoneUsable || inf.NoneInTime {
		return err // which says what SLO would do
	}
	top := p.Edges[len(p.Edges)-1]
	inf.Top = top
	for n := max(p.Devices+1, inf.Devices); n <= max(p.Devices, inf.Devices)+moreTried && n <= mostTimes*p.Devices+someTried && inf.Enough == 0; n++ {
		holds, err := s.holds(ctx, p.on([]int{n}), top)
		if err != nil {
			return err
		}
		if holds {
			inf.Enough = n
		}
	}
	low, high := 0.0, min(inf.Edge, inf.MaxQPS)
	for range rateSteps {
		mid := (low + high) / 2
		holds, err := s.holds(ctx, p, mid)
		if err != nil {
			return err
		}
		if holds {
			low = mid
		} else {
			high = mid
		}
	}
	inf.Holds = low
	for _, factor := range longerSLOs {
		slo := time.Duration(factor * float64(p.SLO))
		holds, err := s.holds(ctx, p.within(slo), top)
		if err != nil {
			return err
		}
		if holds {
			inf.SLO = slo
			break
		}
	}
	return err
}

// shortest is the least SLO that some cascade keeps alone; 0: memory is what is
// missing.
func (p *Problem) shortest() time.Duration {
	least := time.Duration(math.MaxInt64)
	for m := range p.Models {
		for k, kind := range p.kinds() {
			if v := p.variant(m, k); len(v.Times) > 0 && (kind.Memory == 0 || v.Memory <= kind.Memory) {
				least = min(least, p.Models[m].Times[0])
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// holds tells whether some cheap cascade keeps the SLO at a rate.
func (s *search) holds(ctx context.Context, p *Problem, rate float64) (bool, error) {
	if !(rate > 0) {
		return false, nil
	}
	w, err := s.waysOf(ctx, p)
	if none(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	x, q := *w.whole, *p
	q.Edges, q.Weights, q.Target = []float64{rate}, []float64{1}, 0
	x.p = &q
	front := Pareto(totals(x.work), x.list)
	x.take(chosen(x.list, front[:min(cheapest, len(front))]))
	top, _, err := x.ranked(ctx, 2)
	slices.Reverse(x.order) // the lightest first
	for _, c := range top {
		if _, err = c.l.design(&Options{Seed: s.o.Seed}, nil).plan(ctx, 0, &Options{}); err == nil {
			return true, nil
		}
		if !none(err) {
			break
		}
		err = nil
	}
	return false, err
}
