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
	goalMinStretch                 // the least factor on all SLOs with which some plan exists, whatever the rates
	goalMissingDevices             // the fewest devices to add so that some plan exists, whatever the SLOs and rates
)

// programQuery is the question that a program answers: its goal and limits.
type programQuery struct {
	goal          goal
	maxFactor     float64     // upper bound of the rate factor, which is the unit of the program's rates
	maxPrice      float64     // limit of the price. If it is 0, there is none.
	relaxed       bool        // whole numbers may be fractions
	moveLimits    *moveLimits // limits the moves of what runs; nil if nothing does
	excludedPaths []excludedPath
}

// excludedPath is a path of an application whose choices and levels in a solution are too slow, by less
// than the solver's tolerance.
type excludedPath struct {
	app      int
	modules  []int
	solution *solution
}

// program is the mixed-integer program of docs/methods/flow.md with its variables. Rates are in units of
// maxFactor, and in each module of the rate that visits it.
type program struct {
	problem       *problem
	m             *milp.Model
	query         programQuery
	poolCapacity  []milp.Row // devices, by pool
	totalPrice    milp.Row
	factor        milp.Var         // θ, the rate factor in parts of maxFactor
	stretch       milp.Var         // the factor on all SLOs. Only the goal of the least stretch has it.
	level         [][]milp.Var     // z, by model and level
	devices       [][][]milp.Var   // m, by model, level and pool. If a pool cannot run the level, it is -1.
	choiceLevels  [][][][]milp.Var // w, by application, module, choice and level
	capacity      [][]milp.Row     // capacity less the rate that is routed there, by model and level
	sharedDevices []milp.Var       // G, by pool: devices on which models take turns. If there can be none, it is -1.
	sharedTime    []milp.Row       // time of these devices, by pool
	sharedMemory  []milp.Row       // memory of one of these devices, by pool
}

// newProgram returns the mixed-integer program of a query, which says what is optimized: the rate factor (a common factor on all
// rates), the price, the number of devices, the factor on all SLOs with which some plan exists, or the devices to add so that one exists.
// It chooses a model for each module, a level (a limit on batch times) for each model, and devices.
func (p *problem) newProgram(q programQuery) *program {
	x := &program{problem: p, m: milp.New("applications"), query: q}
	x.factor = x.m.AddVar("factor", 0, 1, 0) // in parts of q.maxFactor

	// The goal sets the objective and fixes the rate factor where it is not free: at 1 if the rates are given, at 0 if any plan will do,
	// whatever its rates. addDeployments sets the objective for prices, devices and missing devices.
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
	if q.moveLimits != nil {
		x.addMoves(q.moveLimits)
	}
	return x
}

// addInteger adds a variable of whole numbers from 0 to maxValue, with its coefficient in the objective. In a relaxed program it may be a
// fraction.
func (x *program) addInteger(name string, maxValue, objective float64) milp.Var {
	if x.query.relaxed {
		return x.m.AddVar(name, 0, maxValue, objective)
	}
	return x.m.AddInt(name, 0, maxValue, objective)
}

// addDeployments adds the rows that limit the devices of each pool and their price, then for every model the row that allows it one
// level (a limit on its batch times), and its levels by addLevel. If z_ul says that model u has level l, and m_ulk is the number of its
// devices of pool k, which has N_k, these rows are
//
//	Σ_l z_ul ≤ 1;   Σ_ul m_ulk ≤ N_k;   Σ_ulk price_k m_ulk ≤ maxPrice
func (x *program) addDeployments() {
	p := x.problem
	maxPrice := cmp.Or(x.query.maxPrice, milp.Inf) // 0 stands for no limit
	x.poolCapacity, x.totalPrice = make([]milp.Row, len(p.pools)), x.m.AddLE("price", maxPrice)
	for k := range p.pools {
		x.poolCapacity[k] = x.m.AddLE("devices "+p.pools[k].kind, float64(p.pools[k].count))

		// The goal of missing devices may add some, each at a cost of 1. One device per model is always enough.
		if x.query.goal == goalMissingDevices {
			addedDevices := x.addInteger("more "+p.pools[k].kind, float64(len(p.models)), 1)
			x.m.AddTerm(x.poolCapacity[k], addedDevices, -1)
		}
	}
	x.addSharedDevices()
	x.level, x.devices, x.capacity = make([][]milp.Var, len(p.models)), make([][][]milp.Var, len(p.models)), make([][]milp.Row, len(p.models))
	for u := range p.models {
		oneLevel := x.m.AddLE("level of "+p.models[u].name, 1)
		for l := range p.models[u].levels {
			x.addLevel(u, l, oneLevel)
		}
	}
}

// addLevel adds level l of model u (a limit on its batch times): z, which is 1 if the model has the level, and by pool k its devices m
// or, where models take turns, its part of the shared devices' time. They are 0 without the level, and with it some device is needed:
//
//	m_ulk ≤ N_k z_ul;   Σ_k m_ulk ≥ z_ul
//
// addChoices adds the rates at which modules use the level to the row capacityRow, in which the devices must carry them. oneLevel is the row
// that allows the model one level.
func (x *program) addLevel(u, l int, oneLevel milp.Row) {
	p, m := x.problem, x.m
	name := fmt.Sprintf("%s %d", p.models[u].name, l)
	z := x.addInteger("level "+name, 1, 0)
	m.AddTerm(oneLevel, z, 1)
	someDevice := m.AddGE("some "+name, 0, milp.Term{Var: z, Coef: -1})
	capacityRow := m.AddGE("capacity "+name, 0)

	// Per pool: the devices, or the part of the time of shared devices, that the level has there. -1 stands for none.
	byPool := make([]milp.Var, len(p.pools))
	for k := range p.pools {
		byPool[k] = -1
		t := &p.models[u].levels[l].templates[k]
		maxDevices := float64(p.pools[k].count)
		if x.query.goal == goalMissingDevices {
			maxDevices = 1 // at a rate factor of 0, one device per model is enough
		}
		if t.rate == 0 || maxDevices == 0 {
			continue
		}
		if p.isTimeShared(u, l, k) {
			// A model that takes turns has a device if any are shared.
			byPool[k] = x.addTimeShare(u, l, k, name)
			m.AddTerm(someDevice, x.sharedDevices[k], 1)
		} else {
			byPool[k] = x.addInteger("devices "+name+" "+p.pools[k].kind, maxDevices, x.objectiveWeight(k))
			m.AddTerm(x.poolCapacity[k], byPool[k], 1)
			m.AddTerm(x.totalPrice, byPool[k], p.pools[k].price)
			m.AddTerm(someDevice, byPool[k], 1)
		}
		m.AddTerm(capacityRow, byPool[k], t.rate/x.query.maxFactor)
		m.AddLE("at "+name, 0, milp.Term{Var: byPool[k], Coef: 1}, milp.Term{Var: z, Coef: -maxDevices})
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

// readSolution returns the solution of the program as one of the problem: the choice of a model for each module, the level of each of
// these models (a limit on its batch times), and its devices or time shares by pool.
func (x *program) readSolution(sol *milp.Solution) *solution {
	s := x.problem.newSolution()

	// Read the choice of every module (i) of every application (a), which also gives the level of the chosen model.
	for a := range x.choiceLevels {
		for i := range x.choiceLevels[a] {
			choice, level := chosenLevel(sol, x.choiceLevels[a][i])
			model := x.problem.apps[a].modules[i].choices[choice].model
			s.choice[a][i], s.level[model] = choice, level
		}
	}

	// Read the devices of every deployed model in every pool (k).
	for model, level := range s.level {
		if level < 0 {
			continue // no module chose the model
		}
		for k, devices := range x.devices[model][level] {
			if devices >= 0 && !x.problem.isTimeShared(model, level, k) { // -1 stands for a pool that cannot run the level
				s.devices[model][k] = sol.Int(devices)
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
