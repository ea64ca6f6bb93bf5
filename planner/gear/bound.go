package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"inferplan/solver/pareto"
)

// pooled are devices of all kinds as one whose time has a price: a second of all of them costs 1,
// and a sample of a model what it does on the kind, or along the chain, where that is cheapest. Whatever the prices, no plan
// does more than devices that never wait and whose work in all is limited by its price alone.
type pooled struct {
	*Problem
	list    []Cascade
	late    []float64 // by cascade, see lateAtLeast
	seconds []float64 // prices of a device, by kind
	wires   map[nic]float64
	scale   float64   // of the numbers of devices
	inTime  []float64 // prices of samples by model, in batches as long as the SLO
	anyTime []float64 // in batches of any length
}

// pool returns the devices at the prices of the program of the highest range. in is the fleet within the SLO,
// lax that with all the time there is, of which the cascades are.
func (p *Problem) pool(ctx context.Context, in, lax *fleet) (*pooled, error) {
	g, sol, _, err := lax.relax(ctx, len(p.Edges)-1, false, nil)
	if err != nil {
		return nil, err
	}
	seconds, wires, total := make([]float64, len(p.Kinds)), map[nic]float64{}, 0.0
	for c, conf := range lax.all {
		seconds[conf.Kind] = math.Abs(sol.RowDuals[g.time[0][c]])
		total += seconds[conf.Kind] * float64(p.Kinds[conf.Kind].Devices)
	}
	for n, row := range g.nic[0] {
		wires[n] = math.Abs(sol.RowDuals[row])
		total += wires[n] * lax.nics(n.kind)
	}
	if !(total > 0) { // there is more than enough of all
		total = 0
		for k := range seconds {
			seconds[k] = 1
			total += float64(p.Kinds[k].Devices)
		}
	}
	for k := range seconds {
		seconds[k] /= total
	}
	for n := range wires {
		wires[n] /= total
	}
	priced := func(x *fleet) []float64 {
		l := fluidLayout(x)
		cells := make([]float64, len(l.cells))
		for c := range cells {
			cells[c] = seconds[l.cells[c].Kind]
		}
		return l.priced(cells, wires)
	}
	return &pooled{Problem: p, list: lax.list, late: lax.late, scale: 1, seconds: seconds, wires: wires, inTime: priced(in), anyTime: priced(lax)}, nil
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
func (p *pooled) laxes(any []float64) []lax {
	var out []lax
	for i := range p.list {
		c := &p.list[i]
		shares := []float64{p.late[i]}
		for k, m := range c.Models {
			if reach := float64(c.Reach[k]) / float64(p.Planned.N); reach > p.late[i] && p.inTime[m] > any[m] {
				shares = append(shares, reach)
			}
		}
		for _, late := range shares {
			l := lax{accuracy: accuracyOn(p.Problem, c), late: late}
			for k, m := range c.Models {
				reach := float64(c.Reach[k]) / float64(p.Planned.N)
				l.cost += any[m] * min(late, reach)
				if reach > late {
					l.cost += p.inTime[m] * (reach - late)
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

// laxBounds lowers bounds of ranges where the SLO is for all requests together: to any mixture of
// cascades, of which no more requests are late than the percentile allows. A range
// may spend all of that; total is the bound of all ranges, which share it. Whatever
// a late request is said to cost in accuracy, what that gives is a bound: the least
// over the prices tried stands.
func (p *pooled) laxBounds(bounds []float64) (total float64) {
	all, room := p.laxes(p.anyTime), 1-p.Percentile
	total = leastAtPrice(func(price float64) float64 {
		e, sum := atPrice(all, price), price*room
		for r, edge := range p.Edges {
			v := e.At(p.scale / edge)
			bounds[r] = min(bounds[r], v+price*min(1, room/p.Weights[r]))
			sum += p.Weights[r] * v
		}
		return sum
	})
	return min(total, p.weighted(bounds))
}

// most returns what no plan on so many times the devices exceeds, whose SLO is for all requests together; if no plan
// exists, it returns NaN.
func (p *pooled) most(scale float64) float64 {
	q := *p
	q.scale = scale
	total := q.laxBounds(slices.Repeat([]float64{math.Inf(1)}, len(p.Edges)))
	if p.shown() { // neither one cascade for all rates nor a range need hold the highest
		total = atLeast(total, q.measuredBound())
	}
	return total
}

// shortest returns the least SLO that some cascade keeps alone; if none fits in memory, it returns 0.
func (p *Problem) shortest() time.Duration {
	least := time.Duration(math.MaxInt64)
	for m := range p.Models {
		for k, kind := range p.Kinds {
			if v := p.Models[m].On[k]; len(v.Times) > 0 && (kind.Memory == 0 || v.Memory <= kind.Memory) {
				least = min(least, p.Models[m].Times[0])
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
