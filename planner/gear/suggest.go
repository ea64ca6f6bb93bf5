package gear

import (
	"cmp"
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
	s = s.alike()
	p := s.p
	if p.SLO == 0 {
		return err // the latency was free, too: only devices are missing
	}
	if inf.NoneUsable || inf.NoneInTime {
		return err // which says what SLO would do
	}
	top := p.Edges[len(p.Edges)-1]
	for n := max(p.Devices+1, inf.Devices); n <= max(p.Devices, inf.Devices)+moreTried && inf.Enough == 0; n++ {
		holds, err := s.holds(ctx, s.with(p.SLO, n), top)
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
		holds, err := s.holds(ctx, s.with(slo, p.Devices), top)
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
		fits := p.Memory == 0 || p.Models[m].Memory <= p.Memory
		for k := range p.Kinds {
			v, memory := variantOf(p, m, k), p.Kinds[k].Memory
			fits = k > 0 && fits || len(v.Times) > 0 && (memory == 0 || v.Memory <= memory)
		}
		if fits {
			least = min(least, p.Models[m].Times[0])
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
	list, work, err := s.cascades(p)
	if _, none := errors.AsType[*Infeasible](err); none {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	q := *p
	q.Edges, q.Weights = []float64{rate}, []float64{1}
	front := Pareto(totals(work), list)
	front = front[:min(cheapest, len(front))]
	var some []Cascade
	var cost [][]float64
	for _, i := range front {
		some, cost = append(some, list[i]), append(cost, work[i])
	}
	for _, pl := range (placing{&q}).best(some, cost, 2) {
		b := newBench(&q, pl, s.o.Seed)
		order := upTo(len(some))
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pl.Load(cost[a]), pl.Load(cost[b])) })
		for _, i := range order {
			if pl.Load(cost[i])*rate > 1 {
				break
			}
			shares, _ := pl.Split(cost[i])
			t, err := b.try(ctx, &some[i], 1, shares, rate)
			if t.Passed || err != nil {
				return t.Passed, err
			}
		}
	}
	return false, nil
}
