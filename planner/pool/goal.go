package pool

import (
	"math"

	"inferplan/solver/milp"
)

// planGoal is the goal of a search. Scores are in units, and a higher score is better for every goal, so that
// bounds, losses and phases are the same for all goals.
type goal interface {
	// poolCosts returns the cost of all devices of each pool, in units. If devices cost nothing, it returns nil.
	cost() []float64
	score(c *catalogue, plan *counts) float64
	// noPlanScore returns the score of having no plan.
	none() float64
	// displayValue returns a score as users see it.
	shown(c *catalogue, score float64) float64
	// roundBound lowers a proven bound to the next score that a plan can have.
	tighten(bound float64) float64
	gap(score, bound float64) float64
	// newProgram builds the integer program for plans over a set of templates. No plan scores above bound.
	program(c *catalogue, set []int, bound float64) *program
}

// maxThroughputGoal maximises the least rps / weight over the models.
type throughput struct{}

func (throughput) cost() []float64                           { return nil }
func (throughput) score(c *catalogue, plan *counts) float64  { return plan.value / c.u.theta }
func (throughput) none() float64                             { return 0 }
func (throughput) shown(c *catalogue, score float64) float64 { return score * c.u.theta }
func (throughput) tighten(bound float64) float64             { return bound }

// relativeGap returns the relative distance of a score to a bound.
func (throughput) gap(score, bound float64) float64 {
	if math.IsNaN(bound) {
		return math.Inf(1) // nothing is proven
	}
	if bound <= 0 {
		return 0
	}
	return (bound - score) / bound
}

// newProgram maximises the throughput within a bound that is the relaxation's.
func (throughput) program(c *catalogue, set []int, bound float64) *program {
	// θ is bounded by the relaxation and not more tightly: at a tighter limit all solutions of the relaxation
	// look alike, and the search for plans loses its way.
	return c.program(set, bound, 0)
}

// minPriceGoal minimises the price of the whole devices that carry the floors. A score is a price with its sign
// turned, in parts of the price of all devices.
type leastPrice struct {
	prices []float64 // of one device of each pool
	unit   float64   // price of all devices
	whole  bool      // all prices of devices are whole numbers, and so is that of a plan
	parts  []float64 // by pool: price of its devices in parts of totalPrice
}

// newMinPriceGoal returns the goal of the least price, for given prices of a device of each pool.
func newLeastPrice(p *Problem, prices []float64) *leastPrice {
	g := &leastPrice{prices: prices, whole: true, parts: make([]float64, len(prices))}
	for k, v := range prices {
		g.parts[k] = v * float64(p.Pools[k].Count)
		g.unit += g.parts[k]
		g.whole = g.whole && v == math.Trunc(v)
	}
	for k := range g.parts {
		g.parts[k] /= g.unit
	}
	return g
}

func (g *leastPrice) cost() []float64 { return g.parts }

// scoreOf returns the price of a plan with its sign turned, in parts of the price of all devices.
func (g *leastPrice) score(c *catalogue, plan *counts) float64 {
	return -g.of(c, plan) / g.unit
}
func (g *leastPrice) none() float64                             { return math.Inf(-1) }
func (g *leastPrice) shown(_ *catalogue, score float64) float64 { return -score * g.unit }

// relativeGap returns the distance of a score to a bound in parts of the price. Without a plan it is infinite.
func (g *leastPrice) gap(score, bound float64) float64 {
	if math.IsInf(score, -1) || score == 0 {
		return math.Inf(1)
	}
	return (bound - score) / -score
}

// roundBound raises a least price to the next whole number, if all prices are whole.
func (g *leastPrice) tighten(bound float64) float64 {
	if !g.whole || math.IsInf(bound, 0) {
		return bound
	}
	return -math.Ceil(-bound*g.unit-1e-6) / g.unit
}

// planPrice returns the price of the whole devices that a plan takes.
func (g *leastPrice) of(c *catalogue, plan *counts) float64 {
	sum := 0.0
	for k, n := range c.wholePools(plan) {
		sum += g.prices[k] * float64(n)
	}
	return sum
}

// newProgram maximises the price of the idle devices: whole devices that stay idle are not paid for.
func (g *leastPrice) program(c *catalogue, set []int, _ float64) *program {
	q := c.program(set, 0, 0)
	q.m.SetObj(q.theta, 0)
	q.m.SetOffset(-1)
	q.idle = make([]milp.Var, len(c.Pools))
	for k := range c.Pools {
		q.idle[k] = -1
		if n := c.Pools[k].Count; n > 0 {
			q.idle[k] = q.m.AddInt("idle "+c.Pools[k].Kind, 0, float64(n), g.prices[k]/g.unit)
			q.m.AddTerm(q.pools[k], q.idle[k], 1)
		}
	}
	return q
}
