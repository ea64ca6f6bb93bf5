package flow

import (
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// goal is the objective of a program.
type goal int8

const (
	most    goal = iota // the largest rate factor
	least               // the least price at rate factor 1
	fewest              // the fewest devices at rate factor 1
	soonest             // the least factor on all SLOs with which some plan exists
	lacking             // the fewest devices to add so that some plan exists, whatever the SLOs
)

// programQuery is the question that a program answers: its goal and limits.
type ask struct {
	goal   goal
	top    float64 // upper bound of the rate factor, which is the unit of the program's rates
	spend  float64 // limit of the price. If it is 0, there is none.
	relax  bool    // whole numbers may be fractions
	barred []barred
}

// excludedPath is a path of an application whose choices and levels in a solution are too slow, by less
// than the solver's tolerance.
type barred struct {
	app   int
	nodes []int
	s     *picked
}

// program is the mixed-integer program of docs/methods.md with its variables. Rates are in units of
// maxFactor, and in each module of the rate that visits it.
type program struct {
	p       *problem
	m       *milp.Model
	ask     ask
	factor  milp.Var
	stretch milp.Var
	level   [][]milp.Var     // z, by model and level
	devices [][][]milp.Var   // m, by model, level and pool. If a pool cannot run the level, it is -1.
	chosen  [][][][]milp.Var // w, by application, module, choice and level
	load    [][]milp.Row     // capacity less the rate that is routed there, by model and level
	group   []milp.Var       // G, by pool: devices on which models take turns. If there can be none, it is -1.
	busy    []milp.Row       // time of these devices, by pool
	held    []milp.Row       // memory of one of these devices, by pool
}

// newProgram returns the program of a query.
func (p *problem) program(q ask) *program {
	x := &program{p: p, m: milp.New("applications"), ask: q}
	x.factor = x.m.AddVar("factor", 0, 1, 0)

	// The goal sets the objective and fixes the rate factor where it is not free.
	switch q.goal {
	case most:
		x.m.SetSense(milp.Maximize)
		x.m.SetObj(x.factor, 1)
	case soonest:
		x.stretch = x.m.AddVar("stretch", 0, milp.Inf, 1)
		x.m.SetBounds(x.factor, 0, 0)
	case lacking:
		x.m.SetBounds(x.factor, 0, 0)
	default:
		x.m.SetBounds(x.factor, 1, 1)
	}

	// Rows and variables, from devices to deadlines.
	x.deploy()
	x.chosen = make([][][][]milp.Var, len(p.apps))
	for a := range p.apps {
		x.choose(a)
		x.deadlines(a)
		x.accuracy(a)
	}
	for i := range q.barred {
		x.bar(&q.barred[i])
	}
	return x
}

// addInteger adds a variable of whole numbers from 0 to a maximum. In a relaxed program it may be a
// fraction.
func (x *program) whole(name string, hi, obj float64) milp.Var {
	if x.ask.relax {
		return x.m.AddVar(name, 0, hi, obj)
	}
	return x.m.AddInt(name, 0, hi, obj)
}

// addDeployments adds, for every model, the level that it has and its devices of each pool:
//
//	Σ_l z_ul ≤ 1;   Σ_k m_ulk ≥ z_ul;   m_ulk ≤ N_k z_ul;   Σ_ul m_ulk ≤ N_k
func (x *program) deploy() {
	p, m := x.p, x.m

	// The devices of each pool and the price are limited. The goal of missing devices may add some at a
	// cost.
	taken, spent := make([]milp.Row, len(p.pools)), m.AddLE("price", x.limit())
	for k := range p.pools {
		taken[k] = m.AddLE("devices "+p.pools[k].kind, float64(p.pools[k].count))
		if x.ask.goal == lacking {
			m.AddTerm(taken[k], x.whole("more "+p.pools[k].kind, float64(len(p.models)), 1), -1)
		}
	}
	x.together(taken)
	for u := range p.models {
		one := m.AddLE("level of "+p.models[u].name, 1)
		var levels []milp.Var
		var devices [][]milp.Var
		var load []milp.Row
		for l := range p.models[u].levels {
			name := fmt.Sprintf("%s %d", p.models[u].name, l)
			z := x.whole("level "+name, 1, 0)
			m.AddTerm(one, z, 1)
			there := m.AddGE("some "+name, 0, milp.Term{Var: z, Coef: -1})
			carried := m.AddGE("capacity "+name, 0)

			// Per pool: the devices, or the part of the time of shared devices, that the level has there.
			list := make([]milp.Var, len(p.pools))
			for k := range p.pools {
				list[k] = -1
				t := &p.models[u].levels[l].best[k]
				count := float64(p.pools[k].count)
				if x.ask.goal == lacking {
					count = 1 // one device per model is enough for some plan
				}
				if t.rate == 0 || count == 0 {
					continue
				}
				var n milp.Var
				if p.inTurns(u, l, k) {
					n = x.share(u, l, k, name)
					m.AddTerm(there, x.group[k], 1)
				} else {
					n = x.whole("devices "+name+" "+p.pools[k].kind, count, x.worth(k))
					m.AddTerm(taken[k], n, 1)
					m.AddTerm(spent, n, p.pools[k].price)
					m.AddTerm(there, n, 1)
				}
				list[k] = n
				m.AddTerm(carried, n, t.rate/x.ask.top)
				m.AddLE("at "+name, 0, milp.Term{Var: n, Coef: 1}, milp.Term{Var: z, Coef: -count})
			}
			levels, devices, load = append(levels, z), append(devices, list), append(load, carried)
		}
		x.level, x.devices, x.load = append(x.level, levels), append(x.devices, devices), append(x.load, load)
	}
}

// priceLimit returns the largest price that the solution may have.
func (x *program) limit() float64 {
	if x.ask.spend > 0 {
		return x.ask.spend
	}
	return milp.Inf
}

// objectiveWeight returns the coefficient of a device of the pool in the objective.
func (x *program) worth(pool int) float64 {
	switch x.ask.goal {
	case least:
		return x.p.pools[pool].price
	case fewest:
		return 1
	}
	return 0
}

// addChoices adds, for every module, which choice does its task at which level, and loads that level with
// the module's rate:
//
//	Σ_cl w_icl = 1;   w_icl ≤ z_ul;   Σ_cl f_icl = θ;   f_icl ≤ w_icl
func (x *program) choose(a int) {
	p, m, app := x.p, x.m, &x.p.apps[a]
	x.chosen[a] = make([][][]milp.Var, len(app.nodes))
	for i := range app.nodes {
		n := &app.nodes[i]
		name := app.name + " " + n.name

		// The module has one choice, and its rate is the rate factor.
		one := m.AddEQ("model of "+name, 1)
		all := m.AddEQ("rate of "+name, 0, milp.Term{Var: x.factor, Coef: -1})
		for c := range n.of {
			u := n.of[c].model
			var list []milp.Var
			for l := range p.models[u].levels {
				// With several choices, w says which one is taken. With one choice it is z, the level
				// itself.
				w := x.level[u][l]
				if len(n.of) > 1 {
					w = x.whole(fmt.Sprintf("%s by %s %d", name, p.models[u].name, l), 1, 0)
					m.AddLE("deployed", 0, milp.Term{Var: w, Coef: 1}, milp.Term{Var: x.level[u][l], Coef: -1})
				}
				m.AddTerm(one, w, 1)

				// f is the rate that the choice serves at this level. It loads the level's capacity.
				f := m.AddVar("", 0, 1, 0)
				m.AddTerm(all, f, 1)
				m.AddLE("", 0, milp.Term{Var: f, Coef: 1}, milp.Term{Var: w, Coef: -1})
				m.AddTerm(x.load[u][l], f, -n.chance*app.weight)
				list = append(list, w)
			}
			x.chosen[a][i] = append(x.chosen[a][i], list)
		}
	}
}

// addDeadlines limits every path of application a to its budget, in milliseconds. The goal of the least
// stretch multiplies the budgets by a variable.
func (x *program) deadlines(a int) {
	app := &x.p.apps[a]
	if x.ask.goal == lacking {
		return
	}
	budget := app.budget().Seconds() * 1e3
	for _, path := range app.paths {
		row := x.m.AddLE("deadline of "+app.name, budget)
		if x.ask.goal == soonest {
			x.m.SetRowBounds(row, -milp.Inf, 0)
			x.m.AddTerm(row, x.stretch, -budget)
		}
		for _, i := range path {
			for c, list := range x.chosen[a][i] {
				for l, w := range list {
					x.m.AddTerm(row, w, x.p.step(&x.p.models[app.nodes[i].of[c].model].levels[l]).Seconds()*1e3)
				}
			}
		}
	}
}

// addAccuracyFloor limits the product of an application's accuracies from below: Σ -ln(accuracy) ≤
// -ln(floor).
func (x *program) accuracy(a int) {
	app := &x.p.apps[a]
	if app.floor == 0 {
		return
	}
	row := x.m.AddLE("accuracy of "+app.name, -math.Log(app.floor)+1e-9)
	for i := range app.nodes {
		for c, list := range x.chosen[a][i] {
			for _, w := range list {
				x.m.AddTerm(row, w, app.nodes[i].of[c].loss())
			}
		}
	}
}

// exclude forbids the choices and levels that a path had in a solution.
func (x *program) bar(b *barred) {
	row := x.m.AddLE("barred", float64(len(b.nodes)-1))
	for _, i := range b.nodes {
		c := b.s.choice[b.app][i]
		u := x.p.apps[b.app].nodes[i].of[c].model
		x.m.AddTerm(row, x.chosen[b.app][i][c][b.s.level[u]], 1)
	}
}

// readSolution returns the solution of the program as one of the problem.
func (x *program) read(sol *milp.Solution) *picked {
	s := &picked{level: make([]int, len(x.p.models))}
	for u := range x.p.models {
		s.level[u] = -1
		s.devices = append(s.devices, make([]int, len(x.p.pools)))
	}

	// Choices and levels.
	for a := range x.chosen {
		var list []int
		for i := range x.chosen[a] {
			for c := range x.chosen[a][i] {
				for l, w := range x.chosen[a][i][c] {
					if sol.Int(w) == 1 {
						u := x.p.apps[a].nodes[i].of[c].model
						list, s.level[u] = append(list, c), l
					}
				}
			}
		}
		s.choice = append(s.choice, list)
	}

	// Devices, and parts of time on time-shared pools.
	for u, l := range s.level {
		if l < 0 {
			continue
		}
		for k, n := range x.devices[u][l] {
			if n >= 0 && !x.p.inTurns(u, l, k) {
				s.devices[u][k] = sol.Int(n)
			}
		}
	}
	if x.p.shares() {
		x.times(sol, s)
	}
	return s
}
