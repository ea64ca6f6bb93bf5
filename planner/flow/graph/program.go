package graph

import (
	"cmp"
	"fmt"

	"inferplan/solver/milp"
)

// goal is the objective of a program.
type goal int8

const (
	goalMaxRate        goal = iota // the largest rate factor
	goalMinPrice                   // the least price at rate factor 1
	goalMinDevices                 // the fewest devices at rate factor 1
	goalMinStretch                 // the least factor on all SLOs with which some plan exists
	goalMissingDevices             // the fewest devices to add so that some plan exists, whatever the SLOs
)

// programQuery is the question that a program answers: its goal and limits.
type programQuery struct {
	goal          goal
	maxFactor     float64 // upper bound of the rate factor, which is the unit of the program's rates
	maxPrice      float64 // limit of the price. If it is 0, there is none.
	relaxed       bool    // whole numbers may be fractions
	excludedPaths []excludedPath
}

// excludedPath is a path of an application whose choices and levels in a solution are too slow, by less
// than the solver's tolerance.
type excludedPath struct {
	app      int
	modules  []int
	solution *solution
}

// program is the mixed-integer program of docs/methods.md with its variables. Rates are in units of
// maxFactor, and in each module of the rate that visits it.
type program struct {
	problem       *problem
	m             *milp.Model
	query         programQuery
	poolCapacity  []milp.Row // devices, by pool
	totalPrice    milp.Row
	factor        milp.Var
	stretch       milp.Var
	level         [][]milp.Var     // z, by model and level
	devices       [][][]milp.Var   // m, by model, level and pool. If a pool cannot run the level, it is -1.
	choiceLevels  [][][][]milp.Var // w, by application, module, choice and level
	capacity      [][]milp.Row     // capacity less the rate that is routed there, by model and level
	sharedDevices []milp.Var       // G, by pool: devices on which models take turns. If there can be none, it is -1.
	sharedTime    []milp.Row       // time of these devices, by pool
	sharedMemory  []milp.Row       // memory of one of these devices, by pool
}

// newProgram returns the mixed-integer program of a query, which says what is optimized: the rate, price,
// number of devices, the stretch of SLOs or missing devices. It chooses a model for each module, a level (a
// limit on batch times) for each model, and devices.
func (p *problem) newProgram(q programQuery) *program {
	x := &program{problem: p, m: milp.New("applications"), query: q}
	x.factor = x.m.AddVar("factor", 0, 1, 0)

	// The goal sets the objective and fixes the rate factor where it is not free.
	switch q.goal {
	case goalMaxRate:
		x.m.SetSense(milp.Maximize)
		x.m.SetObj(x.factor, 1)
	case goalMinStretch:
		x.stretch = x.m.AddVar("stretch", 0, milp.Inf, 1)
		x.m.SetBounds(x.factor, 0, 0)
	case goalMissingDevices:
		x.m.SetBounds(x.factor, 0, 0)
	default:
		x.m.SetBounds(x.factor, 1, 1)
	}

	// Rows and variables, from devices to deadlines.
	x.addDeployments()
	x.choiceLevels = make([][][][]milp.Var, len(p.apps))
	for a := range p.apps {
		x.addChoices(a)
		x.addDeadlines(a)
		x.addAccuracyFloor(a)
	}
	for i := range q.excludedPaths {
		x.exclude(&q.excludedPaths[i])
	}
	return x
}

// addInteger adds a variable of whole numbers from 0 to a maximum. In a relaxed program it may be a
// fraction.
func (x *program) addInteger(name string, maxValue, objective float64) milp.Var {
	if x.query.relaxed {
		return x.m.AddVar(name, 0, maxValue, objective)
	}
	return x.m.AddInt(name, 0, maxValue, objective)
}

// addDeployments adds, for every model u, the level l that it has (z, a limit on its batch times) and its devices of each pool k (m; N_k
// are there):
//
//	Σ_l z_ul ≤ 1;   Σ_k m_ulk ≥ z_ul;   m_ulk ≤ N_k z_ul;   Σ_ul m_ulk ≤ N_k
func (x *program) addDeployments() {
	p, m := x.problem, x.m

	// The devices of each pool and the price are limited. The goal of missing devices may add some at a
	// cost.
	x.poolCapacity, x.totalPrice = make([]milp.Row, len(p.pools)), m.AddLE("price", cmp.Or(x.query.maxPrice, milp.Inf))
	for k := range p.pools {
		x.poolCapacity[k] = m.AddLE("devices "+p.pools[k].kind, float64(p.pools[k].count))
		if x.query.goal == goalMissingDevices {
			m.AddTerm(x.poolCapacity[k], x.addInteger("more "+p.pools[k].kind, float64(len(p.models)), 1), -1)
		}
	}
	x.addSharedDevices()
	x.level, x.devices, x.capacity = make([][]milp.Var, len(p.models)), make([][][]milp.Var, len(p.models)), make([][]milp.Row, len(p.models))
	for u := range p.models {
		oneLevel := m.AddLE("level of "+p.models[u].name, 1)
		for l := range p.models[u].levels {
			x.addLevel(u, l, oneLevel)
		}
	}
}

// addLevel adds level l of model u (a limit on its batch times): a variable that is 1 if the model has it, its devices of each pool or
// its time on devices where models take turns, and a row by which these carry the rate with which modules load the level. oneLevel is the
// row that allows the model one level.
func (x *program) addLevel(u, l int, oneLevel milp.Row) {
	p, m := x.problem, x.m
	name := fmt.Sprintf("%s %d", p.models[u].name, l)
	z := x.addInteger("level "+name, 1, 0)
	m.AddTerm(oneLevel, z, 1)
	someDevice := m.AddGE("some "+name, 0, milp.Term{Var: z, Coef: -1})
	capacityRow := m.AddGE("capacity "+name, 0)

	// Per pool: the devices, or the part of the time of shared devices, that the level has there.
	byPool := make([]milp.Var, len(p.pools))
	for k := range p.pools {
		byPool[k] = -1
		t := &p.models[u].levels[l].templates[k]
		count := float64(p.pools[k].count)
		if x.query.goal == goalMissingDevices {
			count = 1 // one device per model is enough for some plan
		}
		if t.rate == 0 || count == 0 {
			continue
		}
		if p.isTimeShared(u, l, k) {
			byPool[k] = x.addTimeShare(u, l, k, name)
			m.AddTerm(someDevice, x.sharedDevices[k], 1)
		} else {
			byPool[k] = x.addInteger("devices "+name+" "+p.pools[k].kind, count, x.objectiveWeight(k))
			m.AddTerm(x.poolCapacity[k], byPool[k], 1)
			m.AddTerm(x.totalPrice, byPool[k], p.pools[k].price)
			m.AddTerm(someDevice, byPool[k], 1)
		}
		m.AddTerm(capacityRow, byPool[k], t.rate/x.query.maxFactor)
		m.AddLE("at "+name, 0, milp.Term{Var: byPool[k], Coef: 1}, milp.Term{Var: z, Coef: -count})
	}
	x.level[u], x.devices[u], x.capacity[u] = append(x.level[u], z), append(x.devices[u], byPool), append(x.capacity[u], capacityRow)
}

// objectiveWeight returns what a device of a pool counts in the objective: its price, 1 if devices are counted,
// else 0.
func (x *program) objectiveWeight(pool int) float64 {
	switch x.query.goal {
	case goalMinPrice:
		return x.problem.pools[pool].price
	case goalMinDevices:
		return 1
	}
	return 0
}

// addChoices adds, for every module, which choice does its task at which level, and loads that level with the
// module's rate. w says which choice and level it is, z which level the model has, and f is the rate, of the
// factor θ of all rates:
//
//	Σ_cl w_icl = 1;   w_icl ≤ z_ul;   Σ_cl f_icl = θ;   f_icl ≤ w_icl
func (x *program) addChoices(a int) {
	p, m, app := x.problem, x.m, &x.problem.apps[a]
	x.choiceLevels[a] = make([][][]milp.Var, len(app.modules))
	for i := range app.modules {
		n := &app.modules[i]
		name := app.name + " " + n.name

		// The module has one choice, and its rate is the rate factor.
		oneChoice := m.AddEQ("model of "+name, 1)
		moduleRate := m.AddEQ("rate of "+name, 0, milp.Term{Var: x.factor, Coef: -1})
		for c := range n.choices {
			u := n.choices[c].model
			var byLevel []milp.Var
			for l := range p.models[u].levels {
				// With several choices, w says which one is taken. With one choice it is z, the level
				// itself.
				w := x.level[u][l]
				if len(n.choices) > 1 {
					w = x.addInteger(fmt.Sprintf("%s by %s %d", name, p.models[u].name, l), 1, 0)
					m.AddLE("deployed", 0, milp.Term{Var: w, Coef: 1}, milp.Term{Var: x.level[u][l], Coef: -1})
				}
				m.AddTerm(oneChoice, w, 1)

				// f is the rate that the choice serves at this level. It loads the level's capacity.
				f := m.AddVar("", 0, 1, 0)
				m.AddTerm(moduleRate, f, 1)
				m.AddLE("", 0, milp.Term{Var: f, Coef: 1}, milp.Term{Var: w, Coef: -1})
				m.AddTerm(x.capacity[u][l], f, -n.visitShare*app.weight)
				byLevel = append(byLevel, w)
			}
			x.choiceLevels[a][i] = append(x.choiceLevels[a][i], byLevel)
		}
	}
}

// addDeadlines limits the time of every path of application a to its budget, in milliseconds: its modules take
// what their models' levels allow. The goal of the least stretch multiplies the budgets by a variable. If
// devices are missing, deadlines do not count.
func (x *program) addDeadlines(a int) {
	app := &x.problem.apps[a]
	if x.query.goal == goalMissingDevices {
		return
	}
	budget := app.budget().Seconds() * 1e3
	for _, path := range app.paths {
		row := x.m.AddLE("deadline of "+app.name, budget)
		if x.query.goal == goalMinStretch {
			x.m.SetRowBounds(row, -milp.Inf, 0)
			x.m.AddTerm(row, x.stretch, -budget)
		}
		for _, i := range path {
			for c, list := range x.choiceLevels[a][i] {
				for l, w := range list {
					x.m.AddTerm(row, w, x.problem.moduleTime(&x.problem.models[app.modules[i].choices[c].model].levels[l]).Seconds()*1e3)
				}
			}
		}
	}
}

// addAccuracyFloor limits the product of an application's accuracies from below: Σ -ln(accuracy) ≤
// -ln(floor).
func (x *program) addAccuracyFloor(a int) {
	app := &x.problem.apps[a]
	if app.accuracyFloor == 0 {
		return
	}
	row := x.m.AddLE("accuracy of "+app.name, app.accuracyAllowance())
	for i := range app.modules {
		for c, list := range x.choiceLevels[a][i] {
			for _, w := range list {
				x.m.AddTerm(row, w, app.modules[i].choices[c].accuracyLoss())
			}
		}
	}
}

// exclude forbids the choices and levels that the modules of a late path had in a solution, all together: the path is late by less than
// the solver's tolerance, so the program had allowed it.
func (x *program) exclude(b *excludedPath) {
	row := x.m.AddLE("barred", float64(len(b.modules)-1))
	for _, i := range b.modules {
		c := b.solution.choice[b.app][i]
		u := x.problem.apps[b.app].modules[i].choices[c].model
		x.m.AddTerm(row, x.choiceLevels[b.app][i][c][b.solution.level[u]], 1)
	}
}

// readSolution returns the solution of the program as one of the problem.
func (x *program) readSolution(sol *milp.Solution) *solution {
	s := x.problem.newSolution()

	// Choices and levels.
	for a := range x.choiceLevels {
		for i := range x.choiceLevels[a] {
			c, l := chosenLevel(sol, x.choiceLevels[a][i])
			s.choice[a][i], s.level[x.problem.apps[a].modules[i].choices[c].model] = c, l
		}
	}

	// Devices, and parts of time on time-shared pools.
	for u, l := range s.level {
		if l < 0 {
			continue
		}
		for k, n := range x.devices[u][l] {
			if n >= 0 && !x.problem.isTimeShared(u, l, k) {
				s.devices[u][k] = sol.Int(n)
			}
		}
	}
	if x.problem.hasTimeSharedPool() {
		x.readTimeShares(sol, s)
	}
	return s
}

// chosenLevel returns the choice of a module, and the level of its model. choiceLevels has the variables of
// the module, by choice and level: exactly one of them is 1.
func chosenLevel(sol *milp.Solution, choiceLevels [][]milp.Var) (choice, level int) {
	for c := range choiceLevels {
		for l, w := range choiceLevels[c] {
			if sol.Int(w) == 1 {
				return c, l
			}
		}
	}
	panic("a module of a solution without a choice")
}
