package incumbent

import (
	"math"

	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/templates"
)

// Goal is the goal of a search. Scores are in units, and a higher score is better for every goal, so that
// bounds, losses and phases are the same for all goals.
type Goal interface {
	// PoolCosts returns the cost of all devices of each pool, in units. If devices cost nothing, it returns nil.
	PoolCosts() []float64
	// ScoreOf returns the value of a plan by the goal, in units. Higher is better.
	ScoreOf(c *templates.Catalogue, plan *placement.Plan) float64
	// NoPlanScore returns the score of having no plan.
	NoPlanScore() float64
	// DisplayValue returns a score as users see it.
	DisplayValue(c *templates.Catalogue, score float64) float64
	// roundBound lowers a proven bound to the next score that a plan can have.
	roundBound(bound float64) float64
	// RelativeGap returns how far a score may lie below the best one, by a bound, as a part.
	RelativeGap(score, bound float64) float64
	// NewProgram builds the integer program for plans over a set of templates. No plan scores above bound.
	NewProgram(c *templates.Catalogue, set []int, bound float64) *programs.Program
}

// MaxThroughput maximises the least rps / weight over the models.
type MaxThroughput struct{}

// PoolCosts returns nil: devices cost nothing.
func (MaxThroughput) PoolCosts() []float64 { return nil }

// ScoreOf returns the throughput of a plan, its least rate per weight, in units.
func (MaxThroughput) ScoreOf(c *templates.Catalogue, plan *placement.Plan) float64 {
	return plan.Value / c.Units.Throughput
}

// NoPlanScore returns 0: without a plan nothing is served.
func (MaxThroughput) NoPlanScore() float64 { return 0 }

// DisplayValue returns a throughput in requests/s per weight.
func (MaxThroughput) DisplayValue(c *templates.Catalogue, score float64) float64 {
	return score * c.Units.Throughput
}

// roundBound returns the bound as it is: any throughput is possible.
func (MaxThroughput) roundBound(bound float64) float64 { return bound }

// RelativeGap returns how far a score (a throughput) lies below its bound, as a part of the bound. If nothing is proven
// (the bound is NaN), it is +Inf. If the bound is 0, so that no plan carries anything, it is 0.
func (MaxThroughput) RelativeGap(score, bound float64) float64 {
	if math.IsNaN(bound) {
		return math.Inf(1) // nothing is proven
	}
	if bound <= 0 {
		return 0
	}
	return (bound - score) / bound
}

// NewProgram maximises the throughput within a bound that is the relaxation's.
func (MaxThroughput) NewProgram(c *templates.Catalogue, set []int, bound float64) *programs.Program {
	// θ is bounded by the relaxation and not more tightly: at a tighter limit all solutions of the relaxation
	// look alike, and the search for plans loses its way.
	return programs.New(c, set, bound, 0)
}

// MinPrice minimises the price of the whole devices that carry the floors. A score is a price with its sign
// turned, in parts of the price of all devices.
type MinPrice struct {
	devicePrices []float64 // of one device of each pool
	TotalPrice   float64   // price of all devices
	wholePrices  bool      // all prices of devices are whole numbers, and so is that of a plan
	poolParts    []float64 // by pool: price of its devices in parts of totalPrice
}

// NewMinPrice returns the goal of the least price of the whole devices that carry the floors (the least rates of the
// models). prices has, by pool, the price of one device. The goal counts in parts of the price of the whole cluster, so
// that scores lie between -1 and 0.
func NewMinPrice(p *problem.Problem, prices []float64) *MinPrice {
	// The price of each pool, of all pools, and whether all prices are whole numbers (then bounds round up to one).
	g := &MinPrice{devicePrices: prices, wholePrices: true, poolParts: make([]float64, len(prices))}
	for k, price := range prices {
		g.poolParts[k] = price * float64(p.Pools[k].Count)
		g.TotalPrice += g.poolParts[k]
		g.wholePrices = g.wholePrices && price == math.Trunc(price)
	}

	// The pools' prices in parts of the price of all.
	for k := range g.poolParts {
		g.poolParts[k] /= g.TotalPrice
	}
	return g
}

// PoolCosts returns the price of all devices of each pool, as a part of that of the whole cluster.
func (g *MinPrice) PoolCosts() []float64 { return g.poolParts }

// ScoreOf returns the price of a plan with its sign turned, in parts of the price of all devices.
func (g *MinPrice) ScoreOf(c *templates.Catalogue, plan *placement.Plan) float64 {
	return -g.planPrice(c, plan) / g.TotalPrice
}

// NoPlanScore returns minus infinity: without a plan the floors are not carried at any price.
func (g *MinPrice) NoPlanScore() float64 { return math.Inf(-1) }

// DisplayValue returns the price that a score stands for.
func (g *MinPrice) DisplayValue(_ *templates.Catalogue, score float64) float64 {
	return -score * g.TotalPrice
}

// RelativeGap returns how far the price of a plan lies above the proven least price, as a part of the plan's price. Both
// are given as scores: prices with their sign turned. Without a plan (a score of -Inf), and for a plan of price 0, it
// is +Inf.
func (g *MinPrice) RelativeGap(score, bound float64) float64 {
	if math.IsInf(score, -1) || score == 0 {
		return math.Inf(1)
	}
	return (bound - score) / -score
}

// roundBound raises a bound on the least price to the next whole number, if the prices of all devices are whole: no
// plan costs a fraction. The bound is given and returned as a score: minus a price, in parts of the price of all
// devices. The 1e-6 keeps a price that rounding errors lifted just above a whole number at that number.
func (g *MinPrice) roundBound(bound float64) float64 {
	if !g.wholePrices || math.IsInf(bound, 0) {
		return bound
	}
	return -math.Ceil(-bound*g.TotalPrice-1e-6) / g.TotalPrice
}

// planPrice returns the price of the whole devices that a plan takes, of which parts count as whole.
func (g *MinPrice) planPrice(c *templates.Catalogue, plan *placement.Plan) float64 {
	sum := 0.0
	for k, n := range placement.WholeDevicesUsed(c, plan) {
		sum += g.devicePrices[k] * float64(n)
	}
	return sum
}

// NewProgram minimises the price of the devices that plans over a set of templates take.
func (g *MinPrice) NewProgram(c *templates.Catalogue, set []int, _ float64) *programs.Program {
	q := programs.New(c, set, 0, 0)
	q.MinimizePrice(g.devicePrices, g.TotalPrice)
	return q
}
