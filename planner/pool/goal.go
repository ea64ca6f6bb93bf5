package pool

import (
	"math"

	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/templates"
)

// planGoal is the goal of a search. Scores are in units, and a higher score is better for every goal, so that
// bounds, losses and phases are the same for all goals.
type planGoal interface {
	// poolCosts returns the cost of all devices of each pool, in units. If devices cost nothing, it returns nil.
	poolCosts() []float64
	// scoreOf returns the value of a plan by the goal, in units. Higher is better.
	scoreOf(c *templates.Catalogue, plan *placement.Plan) float64
	// noPlanScore returns the score of having no plan.
	noPlanScore() float64
	// displayValue returns a score as users see it.
	displayValue(c *templates.Catalogue, score float64) float64
	// roundBound lowers a proven bound to the next score that a plan can have.
	roundBound(bound float64) float64
	// relativeGap returns how far a score may lie below the best one, by a bound, as a part.
	relativeGap(score, bound float64) float64
	// newProgram builds the integer program for plans over a set of templates. No plan scores above bound.
	newProgram(c *templates.Catalogue, set []int, bound float64) *programs.Program
}

// maxThroughputGoal maximises the least rps / weight over the models.
type maxThroughputGoal struct{}

// poolCosts returns nil: devices cost nothing.
func (maxThroughputGoal) poolCosts() []float64 { return nil }

// scoreOf returns the throughput of a plan, its least rate per weight, in units.
func (maxThroughputGoal) scoreOf(c *templates.Catalogue, plan *placement.Plan) float64 {
	return plan.Value / c.Units.Throughput
}

// noPlanScore returns 0: without a plan nothing is served.
func (maxThroughputGoal) noPlanScore() float64 { return 0 }

// displayValue returns a throughput in requests/s per weight.
func (maxThroughputGoal) displayValue(c *templates.Catalogue, score float64) float64 {
	return score * c.Units.Throughput
}

// roundBound returns the bound as it is: any throughput is possible.
func (maxThroughputGoal) roundBound(bound float64) float64 { return bound }

// relativeGap returns how far a score lies below its bound, as a part of the bound. If nothing is proven (the
// bound is NaN), it is infinite.
func (maxThroughputGoal) relativeGap(score, bound float64) float64 {
	if math.IsNaN(bound) {
		return math.Inf(1) // nothing is proven
	}
	if bound <= 0 {
		return 0
	}
	return (bound - score) / bound
}

// newProgram maximises the throughput within a bound that is the relaxation's.
func (maxThroughputGoal) newProgram(c *templates.Catalogue, set []int, bound float64) *programs.Program {
	// θ is bounded by the relaxation and not more tightly: at a tighter limit all solutions of the relaxation
	// look alike, and the search for plans loses its way.
	return programs.New(c, set, bound, 0)
}

// minPriceGoal minimises the price of the whole devices that carry the floors. A score is a price with its sign
// turned, in parts of the price of all devices.
type minPriceGoal struct {
	devicePrices []float64 // of one device of each pool
	totalPrice   float64   // price of all devices
	wholePrices  bool      // all prices of devices are whole numbers, and so is that of a plan
	poolParts    []float64 // by pool: price of its devices in parts of totalPrice
}

// newMinPriceGoal returns the goal of the least price, for given prices of one device of each pool. poolParts
// has the price of all devices of each pool, as a part of that of the whole cluster.
func newMinPriceGoal(p *problem.Problem, prices []float64) *minPriceGoal {
	g := &minPriceGoal{devicePrices: prices, wholePrices: true, poolParts: make([]float64, len(prices))}
	for k, v := range prices {
		g.poolParts[k] = v * float64(p.Pools[k].Count)
		g.totalPrice += g.poolParts[k]
		g.wholePrices = g.wholePrices && v == math.Trunc(v)
	}
	for k := range g.poolParts {
		g.poolParts[k] /= g.totalPrice
	}
	return g
}

// poolCosts returns the price of all devices of each pool, as a part of that of the whole cluster.
func (g *minPriceGoal) poolCosts() []float64 { return g.poolParts }

// scoreOf returns the price of a plan with its sign turned, in parts of the price of all devices.
func (g *minPriceGoal) scoreOf(c *templates.Catalogue, plan *placement.Plan) float64 {
	return -g.planPrice(c, plan) / g.totalPrice
}

// noPlanScore returns minus infinity: without a plan the floors are not carried at any price.
func (g *minPriceGoal) noPlanScore() float64 { return math.Inf(-1) }

// displayValue returns the price that a score stands for.
func (g *minPriceGoal) displayValue(_ *templates.Catalogue, score float64) float64 {
	return -score * g.totalPrice
}

// relativeGap returns how far a score lies below its bound, as a part of the plan's price. Scores are prices
// with their sign turned, so -score is the price. Without a plan it is infinite.
func (g *minPriceGoal) relativeGap(score, bound float64) float64 {
	if math.IsInf(score, -1) || score == 0 {
		return math.Inf(1)
	}
	return (bound - score) / -score
}

// roundBound raises a bound on the least price to the next whole number, if the prices of all devices are
// whole: no plan costs a fraction. The bound is a score: minus a price, in parts of the price of all devices.
func (g *minPriceGoal) roundBound(bound float64) float64 {
	if !g.wholePrices || math.IsInf(bound, 0) {
		return bound
	}
	return -math.Ceil(-bound*g.totalPrice-1e-6) / g.totalPrice
}

// planPrice returns the price of the whole devices that a plan takes.
func (g *minPriceGoal) planPrice(c *templates.Catalogue, plan *placement.Plan) float64 {
	sum := 0.0
	for k, n := range placement.WholeDevicesUsed(c, plan) {
		sum += g.devicePrices[k] * float64(n)
	}
	return sum
}

// newProgram minimises the price of the devices that plans over a set of templates take.
func (g *minPriceGoal) newProgram(c *templates.Catalogue, set []int, _ float64) *programs.Program {
	q := programs.New(c, set, 0, 0)
	q.MinimizePrice(g.devicePrices, g.totalPrice)
	return q
}
