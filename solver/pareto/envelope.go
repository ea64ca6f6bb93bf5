package pareto

import "math"

// Envelope is the upper concave envelope of points, by rising cost: the largest mean value of
// a mixture of them by its mean cost.
type Envelope struct{ cost, value []float64 }

// Add takes a point of no less cost and more value than those before. Points of the envelope that now lie on or below
// the line from the one before them to the new point are removed from its end.
func (e *Envelope) Add(cost, value float64) {
	for len(e.cost) > 0 {
		last := len(e.cost) - 1
		if e.cost[last] < cost {
			if last == 0 {
				break
			}
			// The last point stays if the slope from the one before to it is larger than that to the new point. Both are
			// compared as products, without division.
			if (e.value[last]-e.value[last-1])*(cost-e.cost[last-1]) > (value-e.value[last-1])*(e.cost[last]-e.cost[last-1]) {
				break
			}
		}
		e.cost, e.value = e.cost[:last], e.value[:last]
	}
	e.cost, e.value = append(e.cost, cost), append(e.value, value)
}

// At returns the envelope's height at a budget, the largest mean value: on the line between its neighbours, or the last
// value above the last cost. If even the cheapest point costs more, it returns NaN.
func (e *Envelope) At(budget float64) float64 {
	for index := len(e.cost) - 1; index >= 0; index-- {
		if e.cost[index] > budget {
			continue
		}
		if index == len(e.cost)-1 {
			return e.value[index]
		}
		return e.value[index] + (e.value[index+1]-e.value[index])*(budget-e.cost[index])/(e.cost[index+1]-e.cost[index])
	}
	return math.NaN()
}
