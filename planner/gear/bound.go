package gear

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/solver/pareto"
)

// envelopeOf is the largest mean accuracy of a mixture of cascades by its mean cost. Without
// memory limits nothing beats it in steady state.
func envelopeOf(list []Cascade, cost []float64, samples int) (e pareto.Envelope) {
	for _, i := range Pareto(cost, list) {
		e.Add(cost[i], float64(list[i].Correct)/float64(samples))
	}
	return e
}

// relaxation bounds the plans of a problem on identical devices: devices that never
// wait answer any mixture of cascades.
type relaxation struct{ *Problem }

// bounds are, for every range, what no plan over the same thresholds exceeds at
// its upper edge: any mixture of cascades on devices that never wait. Memory
// plays no part in it: what a range needs of every model, in device time, can
// always be given to fractions of devices that hold just that model.
func (p relaxation) bounds(list []Cascade, work [][]float64) []float64 {
	out := make([]float64, len(p.Edges))
	free := envelopeOf(list, totals(work), p.Planned.N)
	for r, edge := range p.Edges {
		out[r] = free.At(float64(p.Devices) / edge)
	}
	return out
}

// lateAtLeast is the least share of the requests that a cascade answers past the SLO: all
// whose way through batches of one is longer.
func lateAtLeast(p *Problem, c *Cascade) float64 {
	path := time.Duration(0)
	for k, m := range c.Models {
		if path += p.Models[m].Times[0]; path > p.SLO {
			return float64(c.Reach[k]) / float64(p.Planned.N)
		}
	}
	return 0
}

// lax is a cascade of whose requests a share is late: what it costs at least.
type lax struct{ cost, accuracy, late float64 }

// laxes are the cascades where the SLO is for all requests together, by rising cost.
// Requests in time are only in batches as long as the SLO. Late ones cost what any says by
// model. Those that ask the most models gain the most by being late, so that a share l
// of the requests is late at the first models as at the last: of what comes to a model, l.
// Between the shares that come to models the cost is linear.
func (p relaxation) laxes(list []Cascade, any []float64) []lax {
	inTime := perSample(p.Problem)
	var out []lax
	for i := range list {
		c := &list[i]
		least := lateAtLeast(p.Problem, c)
		shares := []float64{least}
		for k, m := range c.Models {
			if reach := float64(c.Reach[k]) / float64(p.Planned.N); reach > least && inTime[m] > any[m] {
				shares = append(shares, reach)
			}
		}
		for _, late := range shares {
			l := lax{accuracy: accuracyOn(p.Problem, c), late: late}
			for k, m := range c.Models {
				reach := float64(c.Reach[k]) / float64(p.Planned.N)
				l.cost += any[m] * min(late, reach)
				if reach > late {
					l.cost += inTime[m] * (reach - late)
				}
			}
			if !math.IsInf(l.cost, 1) {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(a, b lax) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy)) })
	return out
}

// atPrice is the upper concave envelope of accuracy less a price of lateness, of
// cascades by rising cost.
func atPrice(list []lax, price float64) (e pareto.Envelope) {
	best := math.Inf(-1)
	for i := range list {
		c, a := list[i].cost, list[i].accuracy-price*list[i].late
		if a <= best {
			continue
		}
		best = a
		e.Add(c, a)
	}
	return e
}

// laxBounds are bounds where the SLO is for all requests together: any mixture of
// cascades, of which no more requests are late than the percentile allows. A range
// may spend all of that; total is the bound of all ranges, which share it. Whatever
// a late request is said to cost in accuracy, what that gives is a bound: the least
// over the prices tried stands.
func (p relaxation) laxBounds(list []Cascade) (bounds []float64, total float64) {
	free := *p.Problem
	free.SLO, free.longest = math.MaxInt64, 0
	all, room := p.laxes(list, perSample(&free)), 1-p.Percentile
	bounds = slices.Repeat([]float64{math.Inf(1)}, len(p.Edges))
	total = leastAtPrice(func(price float64) float64 {
		e, sum := atPrice(all, price), price*room
		for r, edge := range p.Edges {
			v := e.At(float64(p.Devices) / edge)
			bounds[r] = min(bounds[r], v+price*min(1, room/p.Weights[r]))
			sum += p.Weights[r] * v
		}
		return sum
	})
	return bounds, min(total, p.weighted(bounds))
}

// shortest returns the least SLO that some cascade keeps alone; if none fits in memory, it returns 0.
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
