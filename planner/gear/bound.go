package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"inferplan/solver/pareto"
)

// pooledDevices are the devices of all kinds as one, whose time has a price. A second of all of them costs 1, and
// a sample of a model costs what it does on the kind, or along the chain, where that is cheapest. For any prices,
// no plan does more than devices that never queue and whose work is limited by its total price alone.
type pooled struct {
	*Problem
	list    []Cascade
	late    []float64       // by cascade: least share of late requests
	seconds []float64       // by kind: price of a second of a device
	wires   map[nic]float64 // price of a second of a NIC
	scale   float64         // factor on the numbers of devices
	inTime  []float64       // by model: price of a sample in batches as long as the SLO
	anyTime []float64       // by model: price of a sample in batches of any length
}

// poolDevices returns the pooled devices at the duals of the program of the highest range. inTime is the space
// within the SLO, and lax the one without an SLO, whose cascades are used.
func (p *Problem) pool(ctx context.Context, in, lax *fleet) (*pooled, error) {
	g, sol, _, err := lax.relax(ctx, len(p.Edges)-1, false, nil)
	if err != nil {
		return nil, err
	}

	// Prices are the duals of device time and NIC time.
	seconds, wires, total := make([]float64, len(p.Kinds)), map[nic]float64{}, 0.0
	for c, conf := range lax.all {
		seconds[conf.Kind] = math.Abs(sol.RowDuals[g.time[0][c]])
		total += seconds[conf.Kind] * float64(p.Kinds[conf.Kind].Devices)
	}
	for n, row := range g.nic[0] {
		wires[n] = math.Abs(sol.RowDuals[row])
		total += wires[n] * lax.nics(n.kind)
	}
	if !(total > 0) { // devices are not short; price all alike
		total = 0

		// Scale the prices, so that all devices cost 1.
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

	// sampleCosts returns the cost of a sample of each model in a space.
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

// minLateShare returns the least share of the requests that a cascade answers late: those that reach a model at
// which even batches of one take longer than the SLO.
func lateAtLeast(p *Problem, c *Cascade) float64 {
	path := time.Duration(0)
	for k, m := range c.Models {
		if path += p.Models[m].Times[0]; path > p.SLO {
			return float64(c.Reach[k]) / float64(p.Planned.N)
		}
	}
	return 0
}

// lateCascade is a cascade of whose requests a share is late, with the least that it costs per request.
type lax struct{ cost, accuracy, late float64 }

// lateCascades returns cascades with shares of late requests, by rising cost, for an SLO over all requests.
//
// Requests in time are in batches of at most the SLO and cost inTimeCost. Late ones cost lateCost, by model.
// Requests that reach the most models gain most by being late, so a share l of the requests is late at every
// model: of the requests that reach the model, min(l, reach). Between two reaches the cost is linear in l, so only
// the reaches and the least late share are listed:
//
//	cost(l) = Σ_m lateCost(m) · min(l, reach(m)) + inTimeCost(m) · max(0, reach(m) - l)
func (p *pooled) laxes(any []float64) []lax {
	var out []lax
	for i := range p.list {
		c := &p.list[i]

		// The late shares at which the slope changes.
		shares := []float64{p.late[i]}
		for k, m := range c.Models {
			if reach := float64(c.Reach[k]) / float64(p.Planned.N); reach > p.late[i] && p.inTime[m] > any[m] {
				shares = append(shares, reach)
			}
		}

		// The cost at each.
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

// envelopeAtPrice returns the upper concave envelope of accuracy - price · lateShare over the cost. The list is
// sorted by rising cost.
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

// boundOverRequests lowers the bounds of ranges, for an SLO over all requests, to what any mixture of late
// cascades reaches with no more late requests than the percentile allows. One range may use up all of that share.
// The total is the bound over all ranges, which share it. Any price of a late request gives a bound (Lagrange):
//
//	total ≤ Σ_r weight(r) · envelope(price, deviceScale / edge(r)) + price · maxLateShare
//
// The least over the tried prices is returned.
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

// boundAtScale returns the accuracy that no plan exceeds on `scale` times the devices, for an SLO over all
// requests. If no plan exists, it returns NaN.
func (p *pooled) most(scale float64) float64 {
	q := *p
	q.scale = scale
	total := q.laxBounds(slices.Repeat([]float64{math.Inf(1)}, len(p.Edges)))
	if p.shown() { // a plan on measured rates need not hold the highest rate
		total = atLeast(total, q.measuredBound())
	}
	return total
}

// shortestSLO returns the least SLO that some cascade keeps, or 0 if no model fits into memory.
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
