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

// relaxation is the solved linear program over a set of templates. All figures
// are in units, value and bound are scores of the goal.
type relaxation struct {
	value float64   // of the program
	bound float64   // proven from the duals by our own arithmetic
	price []float64 // per pool: what all its devices are worth together
	worth []float64 // per model: what one unit of its rate is worth
	used  []int     // templates with a rate above zero
	rate  []float64 // of each used one
	basis *milp.Basis
}

// master is the linear program over some templates, the restricted master of
// column generation. Without costs: maximise theta with every model's rate at
// least weight * theta (and its floor), and the devices that the rates take
// within the pools. With costs: the least cost of the devices that the floors take.
type master struct {
	*catalogue
	m      *milp.Model
	prices []float64 // per pool: of all its devices; nil where they cost nothing
	extra  int       // pool with one more device; -1 for none
	theta  milp.Var  // -1 with costs
	x      []milp.Var
	models []milp.Row // -1 with costs
	floors []milp.Row // -1 without a floor
	pools  []milp.Row // -1 for empty pools
}

// master builds the program over a set of templates. With extra >= 0 that pool has
// one more device. Without floors, those are left out.
func (c *catalogue) master(prices []float64, set []int, extra int, floors bool) *master {
	l := &master{catalogue: c, m: milp.New("relaxation"), prices: prices, extra: extra, theta: -1}
	if prices == nil {
		l.m.SetSense(milp.Maximize)
		l.theta = l.m.AddVar("theta", 0, milp.Inf, 1)
	}
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
	for k := range c.Pools {
		row := milp.Row(-1)
		if c.Pools[k].Count > 0 {
			row = l.m.AddLE("devices "+c.Pools[k].Kind, l.room(k))
		}
		l.pools = append(l.pools, row)
	}
	l.x = make([]milp.Var, 0, len(set))
	for _, ti := range set {
		l.add(&c.templates[ti])
	}
	return l
}

// room is the devices of a pool in parts of those it has.
func (l *master) room(k int) float64 {
	if k == l.extra {
		return float64(l.Pools[k].Count+1) / float64(l.Pools[k].Count)
	}
	return 1
}

// add adds the rate of a template to the program.
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

// errInfeasible means that the floors cannot all be met.
var errInfeasible = errors.New("the relaxation is infeasible")

// relax solves the linear program over a set of templates. With extra >= 0 that
// pool has one more device.
func (c *catalogue) relax(ctx context.Context, s milp.Solver, prices []float64, set []int, extra int) (*relaxation, error) {
	return relaxFrom(ctx, c, s, prices, set, extra, nil)
}

// relaxFrom is relax from the basis of the program with other devices; nil: from none.
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
	w := l.weights(sol.RowDuals)
	least := slices.Repeat([]float64{math.Inf(1)}, len(c.Models))
	for _, ti := range set {
		t := &c.templates[ti]
		least[t.Model] = min(least[t.Model], c.cost(t, w.price))
	}
	r := l.relaxation(sol, set)
	if w.up(least) > 1.001 {
		// The duals prove nothing useful; the program's own value stands.
		r.price, r.worth, r.bound = w.price, w.worth, r.value*(1+1e-7)
		return r, nil
	}
	l.prove(w, least, r)
	return r, nil
}

// relaxation reads rates and value of a solution over a set of templates.
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

// weights are prices of the pools and worths of the models' rates, by duals.
type weights struct {
	price, worth []float64
	scarcity     float64 // with costs: what the pools' limits add to the prices
	floors       float64 // without: worth of the floors
	scaled       bool    // without costs: worths but for the floors' sum to 1
}

// weights reads the duals. Without costs they are scaled so that the models'
// rows sum to one; all zero where that cannot be.
func (l *master) weights(duals []float64) weights {
	dual := func(row milp.Row) float64 {
		if row < 0 {
			return 0
		}
		return math.Abs(duals[row])
	}
	w := weights{price: make([]float64, len(l.Pools)), worth: make([]float64, len(l.Models))}
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

// up is by how much prices must grow for no template to be worth more than it costs.
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

// prove sets prices, worths and bound, least being what the templates of each
// model cost at least. By weak duality, whatever the solver's tolerances: for
// any weights >= 0 of the models' rows that sum to 1, mu >= 0 of the floors and
// prices pi >= 0 of the pools such that no template is worth more than it costs,
//
//	theta <= sum pi_k - sum mu_d floor_d
//
// holds for every plan: prices are raised until that is so. With costs c, and
// pi_k - c_k >= 0 the scarcity of a pool, every plan costs at least
// sum worth_d floor_d - sum scarcity: worths are lowered until no template is
// worth more than it costs. Duals that give no number prove nothing: the program's
// own value stands.
func (l *master) prove(w weights, least []float64, r *relaxation) {
	r.price, r.worth = w.price, w.worth
	defer func() {
		if math.IsNaN(r.bound) || math.IsInf(r.bound, 0) {
			r.bound = r.value + 1e-7*math.Abs(r.value)
		}
	}()
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
	up := w.up(least)
	for k := range l.Pools {
		r.price[k] *= up
		r.bound += r.price[k] * l.room(k)
	}
	r.bound -= w.floors
}
