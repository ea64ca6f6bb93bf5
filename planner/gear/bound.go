package gear

import "math"

// envelope is the upper concave envelope of points (cost, accuracy), by rising
// cost: the largest mean accuracy of a mixture of cascades by its mean cost.
// Without memory limits nothing beats it in steady state.
type envelope struct{ cost, accuracy []float64 }

func newEnvelope(list []Cascade, cost []float64, samples int) envelope {
	var e envelope
	for _, i := range pareto(cost, list) {
		c, a := cost[i], float64(list[i].Correct)/float64(samples)
		for n := len(e.cost); n >= 2; n = len(e.cost) {
			if (e.accuracy[n-1]-e.accuracy[n-2])*(c-e.cost[n-2]) > (a-e.accuracy[n-2])*(e.cost[n-1]-e.cost[n-2]) {
				break
			}
			e.cost, e.accuracy = e.cost[:n-1], e.accuracy[:n-1]
		}
		e.cost, e.accuracy = append(e.cost, c), append(e.accuracy, a)
	}
	return e
}

// at is the envelope's height at a budget; NaN where even the cheapest costs
// more.
func (e *envelope) at(budget float64) float64 {
	for k := len(e.cost) - 1; k >= 0; k-- {
		if e.cost[k] > budget {
			continue
		}
		if k == len(e.cost)-1 {
			return e.accuracy[k]
		}
		return e.accuracy[k] + (e.accuracy[k+1]-e.accuracy[k])*(budget-e.cost[k])/(e.cost[k+1]-e.cost[k])
	}
	return math.NaN()
}

// bounds are, for every range, what no plan over the same thresholds exceeds at
// its upper edge: any mixture of cascades on devices that never wait. Memory
// plays no part in it: what a range needs of every model, in device time, can
// always be given to fractions of devices that hold just that model.
func (p *Problem) bounds(list []Cascade, work [][]float64) []float64 {
	out := make([]float64, len(p.Edges))
	free := newEnvelope(list, totals(work), p.Planned.N)
	for r, edge := range p.Edges {
		out[r] = free.at(float64(p.Devices) / edge)
	}
	return out
}
