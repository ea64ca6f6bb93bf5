package pool

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// units scales the programs: rates are counted in the throughput objective
// that a cluster of this size reaches roughly, so that all variables are near 1.
type units struct {
	theta float64   // requests/s per weight
	rps   []float64 // per model: theta * weight
}

func (p *Problem) units(templates []Template) units {
	alone := make([]float64, len(p.Models))
	for i := range templates {
		t := &templates[i]
		rate := math.Inf(1)
		for k := range p.Pools {
			if u := t.use(k); u > 0 {
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
// are in units.
type relaxation struct {
	value float64   // of the program
	bound float64   // proven from the duals by our own arithmetic
	price []float64 // per pool: what all its devices are worth together
	worth []float64 // per model: what one unit of its rate is worth
	used  []int     // templates with a rate above zero
	rate  []float64 // of each used one
}

// lpModel is the linear program of section "template formulation": maximise
// theta with every model's rate at least weight * theta (and its floor), and
// the devices that the rates take at least within the pools.
type lpModel struct {
	m      *milp.Model
	theta  milp.Var
	x      []milp.Var
	models []milp.Row
	floors []milp.Row // -1 without a floor
	pools  []milp.Row // -1 for empty pools
}

func (p *Problem) lp(u units, templates []Template, set []int, extra int, floors bool) *lpModel {
	l := &lpModel{m: milp.New("relaxation")}
	l.m.SetSense(milp.Maximize)
	l.theta = l.m.AddVar("theta", 0, milp.Inf, 1)
	for d := range p.Models {
		l.models = append(l.models, l.m.AddGE("rate "+p.Models[d].Name, 0, milp.Term{Var: l.theta, Coef: -1}))
		row := milp.Row(-1)
		if f := p.Models[d].MinRPS; floors && f > 0 {
			row = l.m.AddGE("floor "+p.Models[d].Name, f/u.rps[d])
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
func (p *Problem) addColumn(l *lpModel, u units, t *Template) milp.Var {
	entries := make([]milp.Entry, 0, 8)
	entries = append(entries, milp.Entry{Row: l.models[t.Model], Coef: 1})
	if r := l.floors[t.Model]; r >= 0 {
		entries = append(entries, milp.Entry{Row: r, Coef: 1})
	}
	for k := range p.Pools {
		if c := t.use(k); c > 0 {
			entries = append(entries, milp.Entry{Row: l.pools[k], Coef: c * u.rps[t.Model] / float64(p.Pools[k].Count)})
		}
	}
	return l.m.AddColumn("", 0, milp.Inf, 0, entries...)
}

// errInfeasible means that the floors cannot all be met.
var errInfeasible = errors.New("the relaxation is infeasible")

// relax solves the linear program over a set of templates. With extra >= 0 that
// pool has one more device.
func (p *Problem) relax(ctx context.Context, s milp.Solver, u units, templates []Template, set []int, extra int) (*relaxation, error) {
	l := p.lp(u, templates, set, extra, true)
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
	r := &relaxation{value: sol.Value, price: make([]float64, len(p.Pools)), worth: make([]float64, len(p.Models))}
	for i, ti := range set {
		if v := sol.At(l.x[i]); v > 1e-9 {
			r.used = append(r.used, ti)
			r.rate = append(r.rate, v)
		}
	}
	p.prove(u, templates, set, l, sol.RowDuals, extra, r)
	return r, nil
}

// prove sets prices and bound from the duals. For any weights lambda >= 0 on
// the models' rows that sum to 1, mu >= 0 on the floors and prices pi >= 0 on
// the pools such that no template is worth more than it costs,
//
//	theta <= sum pi_k - sum mu_d floor_d
//
// holds for every plan, whatever the solver's tolerances: the duals are scaled
// until these conditions hold exactly.
func (p *Problem) prove(u units, templates []Template, set []int, l *lpModel, duals []float64, extra int, r *relaxation) {
	dual := func(row milp.Row) float64 {
		if row < 0 {
			return 0
		}
		return math.Abs(duals[row])
	}
	sum := 0.0
	for d := range p.Models {
		sum += dual(l.models[d])
	}
	if !(sum > 0) {
		r.bound = r.value
		return
	}
	floors := 0.0
	for d := range p.Models {
		mu := dual(l.floors[d]) / sum
		floors += mu * p.Models[d].MinRPS / u.rps[d]
		r.worth[d] = dual(l.models[d])/sum + mu
	}
	for k := range p.Pools {
		r.price[k] = dual(l.pools[k]) / sum
	}
	scale := 1.0
	for _, ti := range set {
		t := &templates[ti]
		if cost := p.cost(u, t, r.price); cost > 0 {
			scale = max(scale, r.worth[t.Model]/cost)
		} else if r.worth[t.Model] > 0 {
			scale = math.Inf(1)
		}
	}
	if math.IsInf(scale, 1) || scale > 1.001 {
		// The duals prove nothing useful; the program's own value stands.
		r.bound = r.value * (1 + 1e-7)
		return
	}
	for k := range p.Pools {
		r.price[k] *= scale
		n := 1.0
		if k == extra {
			n = float64(p.Pools[k].Count+1) / float64(p.Pools[k].Count)
		}
		r.bound += r.price[k] * n
	}
	r.bound -= floors
}

// cost is the price of the devices that one unit of rate through t takes.
func (p *Problem) cost(u units, t *Template, price []float64) float64 {
	c := 0.0
	for k := range p.Pools {
		if price[k] != 0 {
			if v := t.use(k); v > 0 {
				c += price[k] * v * u.rps[t.Model] / float64(p.Pools[k].Count)
			}
		}
	}
	return c
}
