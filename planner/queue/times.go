package queue

import (
	"math"

	"inferplan/planner/lists"
	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// addScenario adds the times at which the places of all queues end in scenario s (one random sample of the work; without scenarios there
// is one, of mean times), and their cost in the objective, times the scenario's weight.
func (m *Program) addScenario(s int, weight float64) {
	placeEnds := make([][]milp.Var, len(m.p.Queues))
	horizon := make([]float64, len(m.p.Queues))
	for g := range placeEnds {
		horizon[g] = m.horizon(s, g)
		placeEnds[g] = m.addEnds(s, g, weight)
	}
	if m.o.Goal == Completion {
		m.addCompletion(placeEnds, horizon)
		return
	}
	m.addLateness(s, weight, placeEnds, horizon)
	m.addCapacity(s, horizon)
}

// horizon returns a time, in seconds, by which queue g has ended in scenario s even if it has all groups and loads the slowest model
// before each. The rows of the program need such a time as a large constant.
func (m *Program) horizon(s, g int) float64 {
	h, change := m.startTime(g), 0.0
	for i := range m.p.Groups {
		if m.canRun(g, i) {
			h += m.workTime(s, g, i)
			change = max(change, m.p.Queues[g].Setup[m.p.Groups[i].Model])
		}
	}
	return h + float64(m.o.QueueLength)*change*m.times.perMean
}

// addEnds adds equation 10 of QLM for queue g in scenario s (a random sample of the work): the group at each place j ends after that
// before it, its own work (times the factor of the scenario) and the load of its model, if that is another one:
//
//	end_j = end_{j-1} + Σ_i work_i x_ij + Σ_model setup_model t_j,model
//
// and returns the variables of the ends by place. x says which group is at place j, and t which model is loaded for it. With the goal
// LateRequests it also adds the queue's mean end to the objective, times the scenario's weight.
func (m *Program) addEnds(s, g int, weight float64) []milp.Var {
	placeEnds := make([]milp.Var, m.o.QueueLength)
	for j := range placeEnds {
		placeEnds[j] = m.Model.AddVar("", m.startTime(g), milp.Inf, 0)
		row, rhs := []milp.Term{{Var: placeEnds[j], Coef: 1}}, m.startTime(g)
		if j > 0 {
			row, rhs = append(row, milp.Term{Var: placeEnds[j-1], Coef: -1}), 0
		}
		for i, v := range m.x[g][j] {
			if v >= 0 {
				row = append(row, milp.Term{Var: v, Coef: -m.workTime(s, g, i)})
			}
		}
		// A load has a mean time only. With a chance constraint, perMean turns means into times of the program; otherwise it is 1.
		for model, v := range m.t[g][j] {
			if v >= 0 {
				row = append(row, milp.Term{Var: v, Coef: -m.times.perMean * m.p.Queues[g].Setup[model]})
			}
		}
		m.Model.AddEQ("", rhs, row...)
	}

	// The goal LateRequests also counts the end of a queue at its mean time, without the margins of a chance constraint that placeEnds
	// have. It is the start, which no order changes, plus the mean work and loads at all places.
	if m.o.Goal == LateRequests {
		for j := range placeEnds {
			for i, v := range m.x[g][j] {
				if v >= 0 {
					m.addObj(v, weight*m.p.EndWeight*m.scenarioFactor(s, g, i)*m.p.Cost(int32(i), m.p.Queues[g].Kind).Work)
				}
			}
			for model, v := range m.t[g][j] {
				if v >= 0 {
					m.addObj(v, weight*m.p.EndWeight*m.p.Queues[g].Setup[model])
				}
			}
		}
	}
	return placeEnds
}

// addObj adds c to the coefficient of v in the objective.
func (m *Program) addObj(v milp.Var, c float64) { m.Model.SetObj(v, m.Model.Obj(v)+c) }

// addCompletion adds the goal Completion, equations 8 and 11 to 13 of QLM: the sum over all groups of when they end less their deadlines,
// which none may miss. placeEnds has the variables of the times at which the work of each place ends, by queue and place; a group ends its
// residence later, with its last answer. horizon has, by queue, a time at which all of its work has ended. All times are in seconds.
// Empty places cost nothing and have no deadline.
func (m *Program) addCompletion(placeEnds [][]milp.Var, horizon []float64) {
	for queue := range placeEnds {
		maxResidence := lists.Max(0.0, len(m.p.Groups), func(i int) float64 { return m.residenceTime(queue, i) })

		// bigM is large enough to switch off the row of an empty place.
		bigM := horizon[queue] + maxResidence
		for place := range placeEnds[queue] {
			completion := m.Model.AddVar("", 0, milp.Inf, 1)

			// With x_i = 1 for the group i at this place (none at an empty one), the rows are
			//
			//	completion ≥ end + Σ_i residence_i x_i - bigM (1 - Σ_i x_i);   completion ≤ Σ_i deadline_i x_i
			//
			// with all variables brought to the left, so that x_i has the coefficient -(residence_i + bigM) in the first.
			lowerRow := []milp.Term{{Var: completion, Coef: 1}, {Var: placeEnds[queue][place], Coef: -1}}
			upperRow := []milp.Term{{Var: completion, Coef: 1}}
			for i, v := range m.x[queue][place] {
				if v >= 0 {
					lowerRow = append(lowerRow, milp.Term{Var: v, Coef: -m.residenceTime(queue, i) - bigM})
					upperRow = append(upperRow, milp.Term{Var: v, Coef: -m.deadline(i)})
				}
			}
			m.Model.AddGE("", -bigM, lowerRow...)
			m.Model.AddLE("", 0, upperRow...)
		}
	}
	sum := lists.Sum(len(m.p.Groups), func(i int) float64 { return m.deadline(i) })
	m.Model.SetOffset(-sum) // so that the objective is completion less deadline
}

// addLateness adds to the objective the lateness of each group in scenario s (one random sample of the work). A group's tardiness is the
// time by which its last answer comes after its deadline, in seconds. It counts once for each request of the group. With the goal
// LateRequests the requests of late groups count, and the tardiness only with a small weight. The new variables are appended to m.tardiness
// and m.isLate. placeEnds has the ends of work by queue and place (a position in the queue), horizon a time at which each queue has ended,
// in seconds.
func (m *Program) addLateness(s int, weight float64, placeEnds [][]milp.Var, horizon []float64) {
	tardiness, isLate := make([]milp.Var, len(m.p.Groups)), make([]milp.Var, len(m.p.Groups))
	for i := range m.p.Groups {
		group := &m.p.Groups[i]
		costPerSecond := group.Size // requests
		if m.o.Goal == LateRequests {
			costPerSecond *= m.p.TardyWeight
		}
		tardiness[i] = m.Model.AddVar("", 0, milp.Inf, weight*costPerSecond)
		isLate[i] = -1 // stands for a group that is never late
		maxTardiness := 0.0

		// Its tardiness follows from the place that it has. x says whether that is this one.
		for queue := range placeEnds {
			// bigM is the most by which the group can be late here: it switches the row off if the group is elsewhere.
			bigM := horizon[queue] + m.residenceTime(queue, i) - m.deadline(i)
			if !m.canRun(queue, i) || bigM <= 0 {
				continue
			}
			maxTardiness = max(maxTardiness, bigM)
			for place, end := range placeEnds[queue] {
				// tardiness ≥ end + residence - deadline - bigM (1 - x), with the variables on the left:
				// tardiness - end - bigM x ≥ residence - deadline - bigM
				x := m.x[queue][place][i]
				m.Model.AddGE("", m.residenceTime(queue, i)-m.deadline(i)-bigM,
					milp.Term{Var: tardiness[i], Coef: 1}, milp.Term{Var: end, Coef: -1}, milp.Term{Var: x, Coef: -bigM})
			}
		}

		// A group is late if its tardiness is above 0.
		if m.o.Goal == LateRequests && maxTardiness > 0 {
			isLate[i] = m.Model.AddBool("", weight*m.p.LateWeight*group.Size)
			m.Model.AddLE("", 0, milp.Term{Var: tardiness[i], Coef: 1}, milp.Term{Var: isLate[i], Coef: -maxTardiness})
		}
	}
	m.tardiness, m.isLate = append(m.tardiness, tardiness), append(m.isLate, isLate)
}

// addCapacity adds rows for scenario s (one random sample of the work) that speed up the solver with the goal LateRequests. They hold for
// every order, but cut off fractional solutions: the groups of a queue that end on time fit before their deadlines, with one load for every
// model among them that is not loaded at the start (addDueRows). Here it adds the variables onTime that these rows count. horizon has, by
// queue, a time at which it has ended.
func (m *Program) addCapacity(s int, horizon []float64) {
	if m.o.Goal != LateRequests {
		return
	}
	isLate := m.isLate[s]
	onTimeRows := make([][]milp.Term, len(m.p.Groups))

	// onTime says, by group, whether the group is in this queue and on time. -1 stands for a group that cannot run here.
	for queue := range m.p.Queues {
		onTime := make([]milp.Var, len(m.p.Groups))
		for i := range m.p.Groups {
			onTime[i] = -1
			if !m.canRun(queue, i) {
				continue
			}
			onTime[i] = m.Model.AddVar("", 0, 1, 0)

			// A group that is on time here is at some place of the queue: onTime ≤ Σ over the places of x.
			row := []milp.Term{{Var: onTime[i], Coef: 1}}
			row = append(row, lists.Map(len(m.x[queue]), func(place int) milp.Term { return milp.Term{Var: m.x[queue][place][i], Coef: -1} })...)
			m.Model.AddLE("", 0, row...)
			onTimeRows[i] = append(onTimeRows[i], milp.Term{Var: onTime[i], Coef: 1})
		}
		m.addDueRows(s, queue, onTime, horizon[queue])
	}

	// Every group is on time in some queue, or late. One that is never late (isLate -1) is on time.
	for i, row := range onTimeRows {
		if isLate[i] >= 0 {
			row = append(row, milp.Term{Var: isLate[i], Coef: 1})
		}
		m.Model.AddEQ("", 1, row...)
	}
}

// addDueRows adds the capacity rows of queue g in scenario s (one random sample of the work). A group's work is due its residence (the time
// from the end of its work to its last answer) before its deadline. For each group k, the work of all groups that is due no later and on
// time, and one load of each language model that they need, fit between the start of the queue and the time when the work of k is due.
// onTime has, by group, the variable that says whether it is in this queue and on time, -1 if it cannot run here. horizon is a time at
// which the queue has ended, in seconds. m.Model is the program that gets the rows; model is a language model.
func (m *Program) addDueRows(s, g int, onTime []milp.Var, horizon float64) {
	for k := range m.p.Groups {
		if onTime[k] < 0 {
			continue
		}

		// Rows only matter between the start of the queue and its horizon.
		due := m.deadline(k) - m.residenceTime(g, k)
		if due >= horizon {
			continue
		}
		// Due before the queue starts: the group cannot be on time here.
		if due < m.startTime(g) {
			m.Model.SetBounds(onTime[k], 0, 0)
			continue
		}

		// Sum the work of the groups that are due by then, and their changes of model. changes has, by model, a variable that is at
		// least onTime of every group with that model, and so 1 if one of them is on time.
		var row []milp.Term
		changes := lists.Filled(m.p.Models, func(int) milp.Var { return -1 })
		for i, v := range onTime {
			if v < 0 || m.deadline(i)-m.residenceTime(g, i) > due {
				continue
			}
			row = append(row, milp.Term{Var: v, Coef: m.workTime(s, g, i)})
			model := m.p.Groups[i].Model
			loadTime := m.p.Queues[g].Setup[model] * m.times.perMean // in times of the program, see linearTimes
			if model == m.p.Queues[g].Model || loadTime == 0 {
				continue // the queue starts with the model
			}
			if changes[model] < 0 {
				changes[model] = m.Model.AddVar("", 0, 1, 0)
				row = append(row, milp.Term{Var: changes[model], Coef: loadTime})
			}
			m.Model.AddLE("", 0, milp.Term{Var: v, Coef: 1}, milp.Term{Var: changes[model], Coef: -1})
		}
		m.Model.AddLE("", due-m.startTime(g), row...)
	}
}

// Value returns the objective of the program for an order of its groups, as the mean over all scenarios, so that a
// search and the program can be compared.
func (m *Program) Value(s *vqueue.Assignment) float64 {
	scenarios := 1
	if m.o.Scenarios != nil {
		scenarios = len(m.o.Scenarios.QueueFactors)
	}
	return lists.Sum(scenarios, func(k int) float64 { return m.scenarioValue(k, s) / float64(scenarios) })
}

// scenarioValue returns the objective for an order of the groups in one scenario alone (a random sample of the work). For the goal
// Completion that is the sum of the groups' completion times less their deadlines, which are negative for groups in time, and infinite if a
// group is late. A lateness up to 1e-6 s is rounding.
func (m *Program) scenarioValue(scenario int, order *vqueue.Assignment) float64 {
	sum := 0.0
	for g := range m.p.Queues {
		q := &m.p.Queues[g]

		// end is when the work of the groups so far ends, in times of the program, which have the margins of a chance constraint
		// (linearTimes). meanBusy is the mean time from the queue's start until then, without margins. model is the one that is loaded.
		end, meanBusy, model := m.startTime(g), 0.0, q.Model
		for _, i := range order.AppendOrder(int32(g), nil) {
			// Add the change of model and the work of the group.
			group := &m.p.Groups[i]
			change := 0.0
			if group.Model != model {
				change, model = q.Setup[group.Model], group.Model
			}
			end += m.times.perMean*change + m.workTime(scenario, g, int(i))
			meanBusy += change + m.scenarioFactor(scenario, g, int(i))*m.p.Cost(i, q.Kind).Work

			// Count its lateness by the goal.
			lateness := end + m.residenceTime(g, int(i)) - m.deadline(int(i))
			switch {
			case m.o.Goal == Completion && lateness > 1e-6:
				return math.Inf(1)
			case m.o.Goal == Completion:
				sum += lateness
			case lateness <= 1e-6:
			case m.o.Goal == Tardiness:
				sum += group.Size * lateness
			default:
				sum += group.Size * (m.p.LateWeight + m.p.TardyWeight*lateness)
			}
		}
		if m.o.Goal == LateRequests {
			sum += m.p.EndWeight * meanBusy
		}
	}
	return sum
}
