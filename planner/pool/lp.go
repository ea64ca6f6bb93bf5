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

// units scales the programs: rates are counted in the throughput objective
// that a cluster of this size reaches roughly, so that all variables are near 1.
type units struct {
	theta float64   // requests/s per weight
	rps   []float64 // per model: theta * weight
}

func (p *Problem) units(templates []stages.Template) units {
	alone := make([]float64, len(p.Models))
	for i := range templates {
		t := &templates[i]
		rate := math.Inf(1)
		for k := range p.Pools {
			if u := t.DevicesPerRPS(k); u > 0 {
				rate = min(rate, float64(p.Pools[k].Count)/u)
			}
		}
		if !math.IsInf(rate, 1) {
			alone[t.Model] = max(alone[t.Model], rate)
		}
	}
	u := units{theta: math.Inf(1), rps: make([]float64, len(p.Models))}
	for d := range p.Models {
		u.theta = min(u.theta, alone[d]/p.Models[d].Weight)
	}
	u.theta /= float64(len(p.Models))
	if !(u.theta > 0) || math.IsInf(u.theta, 0) {
		u.theta = 1
	}
	for d := range p.Models {
		u.rps[d] = u.theta * p.Models[d].Weight
	}
	return u
}

// relaxation is the solved linear program over a set of templates. All figures
// are in units, value and bound are scores of the goal.
type relaxation struct {
	value float64   // of the program
	bound float64   // proven from the duals by our own arithmetic
	price []float64 // per pool: what all its devices are worth together
	worth []float64 // per model: what one unit of its rate is worth
	used  []int     // templates with a rate above zero
	rate  []float64 // of each used one
}

// lpModel is the linear program of section "template formulation". Without
// costs: maximise theta with every model's rate at least weight * theta (and
// its floor), and the devices that the rates take within the pools. With costs:
// the least cost of the devices that the floors take.
type lpModel struct {
	m      *milp.Model
	cost   []float64 // per pool: the price of all its devices
	theta  milp.Var  // -1 with costs
	x      []milp.Var
	models []milp.Row // -1 with costs
	floors []milp.Row // -1 without a floor
	pools  []milp.Row // -1 for empty pools
}

// lp builds the program. With extra >= 0 that pool has one more device; without
// floors, those are left out.
func (p *Problem) lp(u units, cost []float64, templates []stages.Template, set []int, extra int, floors bool) *lpModel {
	l := &lpModel{m: milp.New("relaxation"), cost: cost, theta: -1}
	if cost == nil {
		l.m.SetSense(milp.Maximize)
		l.theta = l.m.AddVar("theta", 0, milp.Inf, 1)
	}
	for d := range p.Models {
		row := milp.Row(-1)
		if cost == nil {
			row = l.m.AddGE("rate "+p.Models[d].Name, 0, milp.Term{Var: l.theta, Coef: -1})
		}
		l.models = append(l.models, row)
		row = -1
		if f := p.Models[d].MinRPS; floors && f > 0 {
			row = l.m.AddGE("floor "+p.Models[d].Name, 1)
		}
		l.floors = append(l.floors, row)
	}
	for k := range p.Pools {
		n := p.Pools[k].Count
		if k == extra {
			n++
		}
		row := milp.Row(-1)
		if p.Pools[k].Count > 0 {
			row = l.m.AddLE("devices "+p.Pools[k].Kind, float64(n)/float64(p.Pools[k].Count))
		}
		l.pools = append(l.pools, row)
	}
	l.x = make([]milp.Var, len(set))
	for i, ti := range set {
		l.x[i] = p.addColumn(l, u, &templates[ti])
	}
	return l
}

// addColumn adds the rate of a template to the program.
func (p *Problem) addColumn(l *lpModel, u units, t *stages.Template) milp.Var {
	entries := make([]milp.Entry, 0, 8)
	if r := l.models[t.Model]; r >= 0 {
		entries = append(entries, milp.Entry{Row: r, Coef: 1})
	}
	if r := l.floors[t.Model]; r >= 0 {
		entries = append(entries, milp.Entry{Row: r, Coef: p.ofFloor(u, t.Model)})
	}
	for k := range p.Pools {
		if c := t.DevicesPerRPS(k); c > 0 {
			entries = append(entries, milp.Entry{Row: l.pools[k], Coef: c * u.rps[t.Model] / float64(p.Pools[k].Count)})
		}
	}
	obj := 0.0
	if l.cost != nil {
		obj = p.cost(u, t, l.cost)
	}
	return l.m.AddColumn("", 0, milp.Inf, obj, entries...)
}

// ofFloor is what one unit of a model's rate is in parts of its floor. The rows
// of floors are counted so: a floor that is a millionth of what the cluster
// carries would else lie within the solver's tolerance, and be ignored.
func (p *Problem) ofFloor(u units, d int) float64 {
	return u.rps[d] / p.Models[d].MinRPS
}

// errInfeasible means that the floors cannot all be met.
var errInfeasible = errors.New("the relaxation is infeasible")

// relax solves the linear program over a set of templates. With extra >= 0 that
// pool has one more device.
func (p *Problem) relax(ctx context.Context, s milp.Solver, u units, cost []float64, templates []stages.Template, set []int, extra int) (*relaxation, error) {
	l := p.lp(u, cost, templates, set, extra, true)
	sol, err := s.Solve(ctx, l.m, milp.Options{})
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
	w := l.weights(p, u, sol.RowDuals)
	least := slices.Repeat([]float64{math.Inf(1)}, len(p.Models))
	for _, ti := range set {
		t := &templates[ti]
		least[t.Model] = min(least[t.Model], p.cost(u, t, w.price))
	}
	r := l.relaxation(sol, set)
	if w.up(least) > 1.001 {
		// The duals prove nothing useful; the program's own value stands.
		r.price, r.worth, r.bound = w.price, w.worth, r.value*(1+1e-7)
		return r, nil
	}
	p.prove(u, l, w, least, extra, r)
	return r, nil
}

// relaxation reads rates and value of a solution over a set of templates.
func (l *lpModel) relaxation(sol *milp.Solution, set []int) *relaxation {
	r := &relaxation{value: sol.Value}
	if l.cost != nil {
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
func (l *lpModel) weights(p *Problem, u units, duals []float64) weights {
	dual := func(row milp.Row) float64 {
		if row < 0 {
			return 0
		}
		return math.Abs(duals[row])
	}
	w := weights{price: make([]float64, len(p.Pools)), worth: make([]float64, len(p.Models))}
	sum := 1.0
	if l.cost == nil {
		sum = 0
		for d := range p.Models {
			sum += dual(l.models[d])
		}
		if !(sum > 0) {
			return w
		}
		w.scaled = true
	}
	for d := range p.Models {
		w.worth[d] = dual(l.models[d]) / sum
		if l.floors[d] >= 0 {
			mu := dual(l.floors[d]) / sum
			w.floors += mu
			w.worth[d] += mu * p.ofFloor(u, d)
		}
	}
	for k := range p.Pools {
		w.price[k] = dual(l.pools[k]) / sum
		if l.cost != nil {
			w.scarcity += w.price[k]
			w.price[k] += l.cost[k]
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
func (p *Problem) prove(u units, l *lpModel, w weights, least []float64, extra int, r *relaxation) {
	r.price, r.worth = w.price, w.worth
	defer func() {
		if math.IsNaN(r.bound) || math.IsInf(r.bound, 0) {
			r.bound = r.value + 1e-7*math.Abs(r.value)
		}
	}()
	if l.cost != nil {
		price := -w.scarcity
		for d := range p.Models {
			r.worth[d] = min(r.worth[d], least[d])
			price += r.worth[d] * p.Models[d].MinRPS / u.rps[d]
		}
		r.bound = -max(price, 0)
		return
	}
	if !w.scaled {
		r.bound = r.value * (1 + 1e-7)
		return
	}
	up := w.up(least)
	for k := range p.Pools {
		r.price[k] *= up
		n := 1.0
		if k == extra {
			n = float64(p.Pools[k].Count+1) / float64(p.Pools[k].Count)
		}
		r.bound += r.price[k] * n
	}
	r.bound -= w.floors
}

// cost is the price of the devices that one unit of rate through t takes.
func (p *Problem) cost(u units, t *stages.Template, price []float64) float64 {
	c := 0.0
	for k := range p.Pools {
		if price[k] != 0 {
			if v := t.DevicesPerRPS(k); v > 0 {
				c += price[k] * v * u.rps[t.Model] / float64(p.Pools[k].Count)
			}
		}
	}
	return c
}
