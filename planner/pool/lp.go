package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// relaxation is the solved linear program over a set of templates. All figures are in units. value and bound are
// scores of the goal.
type relaxation struct {
	value float64   // optimum that the solver found
	bound float64   // proven: no plan over these templates scores more
	price []float64 // by pool: what all its devices are worth together (π)
	worth []float64 // by model: what one unit of its rate is worth (λ)
	used  []int     // templates with a rate above zero
	rate  []float64 // of each of usedTemplates, in units
	basis *milp.Basis
}

// masterProgram is the linear program over some templates, the restricted master of column generation. In
// methods.md's words, with x_t the rate through template t and c_tk its devices of pool k per request/s:
//
//	max θ   s.t.  Σ_{t of d} x_t >= w_d θ  (all d),  Σ_t c_tk x_t <= N_k  (all k)
//
// and every model's rate is at least its floor. If devices have costs, the program instead minimises the cost of
// the devices that carry the floors.
type master struct {
	*catalogue
	m      *milp.Model
	prices []float64  // by pool: cost of all its devices; nil if devices cost nothing
	extra  int        // pool that has one more device; -1 if none has
	theta  milp.Var   // θ; -1 with costs
	x      []milp.Var // by template: its rate
	models []milp.Row // Σ x_t - w_d θ >= 0; -1 with costs
	floors []milp.Row // by model; -1 without a floor
	pools  []milp.Row // by pool, in parts of its devices; -1 for empty pools
}

// newMaster builds the program over a set of templates. If extraPool is not negative, that pool has one more
// device. Without withFloors the floors are left out.
func (c *catalogue) master(prices []float64, set []int, extra int, floors bool) *master {
	l := &master{catalogue: c, m: milp.New("relaxation"), prices: prices, extra: extra, theta: -1}
	if prices == nil {
		l.m.SetSense(milp.Maximize)
		l.theta = l.m.AddVar("theta", 0, milp.Inf, 1)
	}

	// The rows of the models: rates per weight, and floors.
	for d := range c.Models {
		row := milp.Row(-1)
		if prices == nil {
			row = l.m.AddGE("rate "+c.Models[d].Name, 0, milp.Term{Var: l.theta, Coef: -1})
		}
		l.models = append(l.models, row)
		row = -1
		if f := c.Models[d].MinRPS; floors && f > 0 {
			row = l.m.AddGE("floor "+c.Models[d].Name, 1)
		}
		l.floors = append(l.floors, row)
	}

	// The rows of the pools.
	for k := range c.Pools {
		row := milp.Row(-1)
		if c.Pools[k].Count > 0 {
			row = l.m.AddLE("devices "+c.Pools[k].Kind, l.room(k))
		}
		l.pools = append(l.pools, row)
	}

	// The columns.
	l.x = make([]milp.Var, 0, len(set))
	for _, ti := range set {
		l.add(&c.templates[ti])
	}
	return l
}

// capacity returns the devices of a pool in parts of those that it has: 1, or more for the extra pool.
func (l *master) room(k int) float64 {
	if k == l.extra {
		return float64(l.Pools[k].Count+1) / float64(l.Pools[k].Count)
	}
	return 1
}

// addTemplate adds the rate of a template to the program.
func (l *master) add(t *stages.Template) {
	entries := make([]milp.Entry, 0, 8)
	if r := l.models[t.Model]; r >= 0 {
		entries = append(entries, milp.Entry{Row: r, Coef: 1})
	}
	if r := l.floors[t.Model]; r >= 0 {
		entries = append(entries, milp.Entry{Row: r, Coef: l.ofFloor(t.Model)})
	}
	for k := range l.Pools {
		if c := t.DevicesPerRPS(k); c > 0 {
			entries = append(entries, milp.Entry{Row: l.pools[k], Coef: c * l.u.rps[t.Model] / float64(l.Pools[k].Count)})
		}
	}
	obj := 0.0
	if l.prices != nil {
		obj = l.cost(t, l.prices)
	}
	l.x = append(l.x, l.m.AddColumn("", 0, milp.Inf, obj, entries...))
}

// errInfeasible is returned when the floors cannot all be met.
var errInfeasible = errors.New("the relaxation is infeasible")

// solveRelaxation solves the linear program over a set of templates. If extraPool is not negative, that pool has
// one more device. If the floors cannot all be met, it returns errInfeasible.
func (c *catalogue) relax(ctx context.Context, s milp.Solver, prices []float64, set []int, extra int) (*relaxation, error) {
	return relaxFrom(ctx, c, s, prices, set, extra, nil)
}

// solveRelaxationFrom is solveRelaxation started from a basis. A nil basis is no start.
func relaxFrom(ctx context.Context, c *catalogue, s milp.Solver, prices []float64, set []int, extra int, basis *milp.Basis) (*relaxation, error) {
	l := c.master(prices, set, extra, true)
	sol, err := s.Solve(ctx, l.m, milp.Options{Basis: basis})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d pipelines: %w", len(set), err)
	}
	switch sol.Status {
	case milp.Optimal:
	case milp.Infeasible:
		return nil, errInfeasible
	default:
		if ctx.Err() != nil {
			return nil, fmt.Errorf("solving the relaxation: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("solving the relaxation: the solver ended with %s", sol.Status)
	}

	// Bound the optimum by the duals.
	w := l.weights(sol.RowDuals)
	least := slices.Repeat([]float64{math.Inf(1)}, len(c.Models))
	for _, ti := range set {
		t := &c.templates[ti]
		least[t.Model] = min(least[t.Model], c.cost(t, w.price))
	}
	r := l.relaxation(sol, set)
	if w.up(least) > 1.001 {
		// The duals prove nothing useful: the program's own value, with some tolerance, is the bound.
		r.price, r.worth, r.bound = w.price, w.worth, r.value*(1+1e-7)
		return r, nil
	}
	l.prove(w, least, r)
	return r, nil
}

// readSolution returns the rates and the value of a solution over a set of templates.
func (l *master) relaxation(sol *milp.Solution, set []int) *relaxation {
	r := &relaxation{value: sol.Value, basis: sol.Basis}
	if l.prices != nil {
		r.value = -sol.Value
	}
	for i, ti := range set {
		if v := sol.At(l.x[i]); v > 1e-9 {
			r.used = append(r.used, ti)
			r.rate = append(r.rate, v)
		}
	}
	return r
}

// dualWeights holds the prices of the pools and the values of the models' rates, read from the duals.
type weights struct {
	price, worth []float64
	scarcity     float64 // with costs: sum of what the pools' limits add to the prices
	floors       float64 // without costs: sum of the duals of the floors
	scaled       bool    // without costs: the duals of the models' rows were scaled to sum to 1
}

// readDuals reads the duals of a solution. Without costs it scales them so that the duals of the models' rows
// sum to one. If they are all zero, all weights are zero.
func (l *master) weights(duals []float64) weights {
	dual := func(row milp.Row) float64 {
		if row < 0 {
			return 0
		}
		return math.Abs(duals[row])
	}
	w := weights{price: make([]float64, len(l.Pools)), worth: make([]float64, len(l.Models))}

	// Without costs, scale by the sum of the duals of the models' rows.
	sum := 1.0
	if l.prices == nil {
		sum = 0
		for d := range l.Models {
			sum += dual(l.models[d])
		}
		if !(sum > 0) {
			return w
		}
		w.scaled = true
	}
	for d := range l.Models {
		w.worth[d] = dual(l.models[d]) / sum
		if l.floors[d] >= 0 {
			mu := dual(l.floors[d]) / sum
			w.floors += mu
			w.worth[d] += mu * l.ofFloor(d)
		}
	}
	for k := range l.Pools {
		w.price[k] = dual(l.pools[k]) / sum
		if l.prices != nil {
			w.scarcity += w.price[k]
			w.price[k] += l.prices[k]
		}
	}
	return w
}

// priceFactor returns the factor by which prices must grow so that no template is worth more than it costs.
// minCost holds the least cost of any template of each model.
func (w *weights) up(least []float64) float64 {
	if !w.scaled {
		return 1
	}
	up := 1.0
	for d, v := range w.worth {
		if v > 0 {
			up = max(up, v/least[d])
		}
	}
	return up
}

// proveBound sets prices, values and bound of a relaxation. minCost holds the least cost of any template of each
// model. The bound follows from weak duality, whatever the solver's tolerances are. Take any weights >= 0 of the
// models' rows that sum to 1, any mu_d >= 0 of the floors and any prices pi_k >= 0 of the pools such that no
// template is worth more than it costs. Then for every plan
//
//	theta <= Σ pi_k - Σ mu_d floor_d
//
// Prices are raised until no template is worth more than it costs. With costs c_k the scarcity of a pool is pi_k
// - c_k >= 0, and every plan costs at least
//
//	Σ rateDual_d floor_d - Σ scarcity_k
//
// Here the values of rates are lowered until no template is worth more than it costs. Duals that give no finite
// bound prove nothing: then the program's own value, with some tolerance, is the bound.
func (l *master) prove(w weights, least []float64, r *relaxation) {
	r.price, r.worth = w.price, w.worth
	defer func() {
		if math.IsNaN(r.bound) || math.IsInf(r.bound, 0) {
			r.bound = r.value + 1e-7*math.Abs(r.value)
		}
	}()

	// With costs: Σ rateDual_d floor_d - Σ scarcity_k, as a score.
	if l.prices != nil {
		price := -w.scarcity
		for d := range l.Models {
			r.worth[d] = min(r.worth[d], least[d])
			price += r.worth[d] * l.Models[d].MinRPS / l.u.rps[d]
		}
		r.bound = -max(price, 0)
		return
	}
	if !w.scaled {
		r.bound = r.value * (1 + 1e-7)
		return
	}

	// Without costs: Σ pi_k - Σ mu_d floor_d, after prices were raised.
	up := w.up(least)
	for k := range l.Pools {
		r.price[k] *= up
		r.bound += r.price[k] * l.room(k)
	}
	r.bound -= w.floors
}
