package queue

import (
	"math"

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
// before it, its own work and the load of its model, if that is another one:
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
		for model, v := range m.t[g][j] {
			if v >= 0 {
				row = append(row, milp.Term{Var: v, Coef: -m.times.perMean * m.p.Queues[g].Setup[model]})
			}
		}
		m.Model.AddEQ("", rhs, row...)
	}

	// The goal LateRequests also counts the end of a queue, at its mean time.
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
// which none may miss. placeEnds has the variables of the ends by queue and place, horizon a time by which each queue has ended, in
// seconds. Empty places cost nothing and have no deadline.
func (m *Program) addCompletion(placeEnds [][]milp.Var, horizon []float64) {
	for g := range placeEnds {
		// longest is the longest time that the answers of a group take after its work.
		longest := 0.0
		for i := range m.p.Groups {
			longest = max(longest, m.residenceTime(g, i))
		}

		// bigM is large enough to switch off the row of an empty place.
		bigM := horizon[g] + longest
		for j := range placeEnds[g] {
			completion := m.Model.AddVar("", 0, milp.Inf, 1)

			// completion ≥ end + residence - bigM (1 - Σ_i x_ij);   completion ≤ deadline
			lowerRow := []milp.Term{{Var: completion, Coef: 1}, {Var: placeEnds[g][j], Coef: -1}}
			upperRow := []milp.Term{{Var: completion, Coef: 1}}
			for i, v := range m.x[g][j] {
				if v >= 0 {
					lowerRow = append(lowerRow, milp.Term{Var: v, Coef: -m.residenceTime(g, i) - bigM})
					upperRow = append(upperRow, milp.Term{Var: v, Coef: -m.deadline(i)})
				}
			}
			m.Model.AddGE("", -bigM, lowerRow...)
			m.Model.AddLE("", 0, upperRow...)
		}
	}
	sum := 0.0
	for i := range m.p.Groups {
		sum += m.deadline(i)
	}
	m.Model.SetOffset(-sum) // so that the objective is completion less deadline
}

// addLateness adds to the objective the tardiness of each group in scenario s: the time by which it ends after its deadline, per request
// or, with the goal LateRequests, with a small weight beside the number of requests in late groups. The new variables are appended to
// m.tardiness and m.isLate. placeEnds has the ends by queue and place, horizon bounds the end of each queue, in seconds.
func (m *Program) addLateness(s int, weight float64, placeEnds [][]milp.Var, horizon []float64) {
	tardiness, isLate := make([]milp.Var, len(m.p.Groups)), make([]milp.Var, len(m.p.Groups))
	for i := range m.p.Groups {
		group := &m.p.Groups[i]
		perSecond := group.Size
		if m.o.Goal == LateRequests {
			perSecond *= m.p.TardyWeight
		}
		tardiness[i] = m.Model.AddVar("", 0, milp.Inf, weight*perSecond)
		isLate[i] = -1
		maxTardiness := 0.0

		// Its lateness follows from the place that it has.
		for g := range placeEnds {
			// bigM is the most by which the group can be late here: it switches the row off if the group is elsewhere.
			bigM := horizon[g] + m.residenceTime(g, i) - m.deadline(i)
			if !m.canRun(g, i) || bigM <= 0 {
				continue
			}
			maxTardiness = max(maxTardiness, bigM)
			for j, end := range placeEnds[g] {
				// tardiness ≥ end + residence - deadline - bigM (1 - x)
				m.Model.AddGE("", m.residenceTime(g, i)-m.deadline(i)-bigM,
					milp.Term{Var: tardiness[i], Coef: 1}, milp.Term{Var: end, Coef: -1}, milp.Term{Var: m.x[g][j][i], Coef: -bigM})
			}
		}

		// A group is late if its lateness is above 0.
		if m.o.Goal == LateRequests && maxTardiness > 0 {
			isLate[i] = m.Model.AddBool("", weight*m.p.LateWeight*group.Size)
			m.Model.AddLE("", 0, milp.Term{Var: tardiness[i], Coef: 1}, milp.Term{Var: isLate[i], Coef: -maxTardiness})
		}
	}
	m.tardiness, m.isLate = append(m.tardiness, tardiness), append(m.isLate, isLate)
}

// addCapacity adds rows for scenario s that speed up the solver with the goal LateRequests. They hold for every order, but cut off
// fractional solutions: the groups of a queue that end on time fit before their deadlines, with one load for every model among them that
// is not loaded at the start. horizon bounds the end of each queue.
func (m *Program) addCapacity(s int, horizon []float64) {
	if m.o.Goal != LateRequests {
		return
	}
	isLate := m.isLate[s]
	onTimeRows := make([][]milp.Term, len(m.p.Groups))

	// onTime says, by group, whether the group is in this queue and on time.
	for g := range m.p.Queues {
		onTime := make([]milp.Var, len(m.p.Groups))
		for i := range m.p.Groups {
			if onTime[i] = -1; !m.canRun(g, i) {
				continue
			}
			onTime[i] = m.Model.AddVar("", 0, 1, 0)
			row := []milp.Term{{Var: onTime[i], Coef: 1}}
			for j := range m.x[g] {
				row = append(row, milp.Term{Var: m.x[g][j][i], Coef: -1})
			}
			m.Model.AddLE("", 0, row...)
			onTimeRows[i] = append(onTimeRows[i], milp.Term{Var: onTime[i], Coef: 1})
		}
		m.addDueRows(s, g, onTime, horizon[g])
	}

	// Every group is on time in some queue, or late.
	for i, row := range onTimeRows {
		if isLate[i] >= 0 {
			row = append(row, milp.Term{Var: isLate[i], Coef: 1})
		}
		m.Model.AddEQ("", 1, row...)
	}
}

// addDueRows adds the capacity rows of queue g in scenario s: for each group k, the work of all groups that are due no later and on time,
// and one load of each model that they need, fit before its deadline. onTime has, by group, the variable that says whether it is in this
// queue and on time, -1 if it cannot run here. horizon is a time by which the queue has ended, in seconds.
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

		// Sum the work of the groups that are due by then, and their changes of model.
		var row []milp.Term
		changes := make([]milp.Var, m.p.Models)
		for model := range changes {
			changes[model] = -1
		}
		for i, v := range onTime {
			if v < 0 || m.deadline(i)-m.residenceTime(g, i) > due {
				continue
			}
			row = append(row, milp.Term{Var: v, Coef: m.workTime(s, g, i)})
			model := m.p.Groups[i].Model
			cost := m.p.Queues[g].Setup[model] * m.times.perMean
			if model == m.p.Queues[g].Model || cost == 0 {
				continue
			}
			if changes[model] < 0 {
				changes[model] = m.Model.AddVar("", 0, 1, 0)
				row = append(row, milp.Term{Var: changes[model], Coef: cost})
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
	sum := 0.0
	for k := range scenarios {
		sum += m.scenarioValue(k, s) / float64(scenarios)
	}
	return sum
}

// scenarioValue returns the objective for an order s of the groups in scenario k alone (one random sample of the work). It is infinite if
// the goal is Completion and a group is late. A lateness up to 1e-6 s is rounding.
func (m *Program) scenarioValue(k int, s *vqueue.Assignment) float64 {
	sum := 0.0
	for g := range m.p.Queues {
		q := &m.p.Queues[g]

		// t is the end of the groups so far with the program's margins, mean the same without, model the one that is loaded.
		t, mean, model := m.startTime(g), 0.0, q.Model
		for _, i := range s.AppendOrder(int32(g), nil) {
			// Add the change of model and the work of the group.
			group := &m.p.Groups[i]
			change := 0.0
			if group.Model != model {
				change, model = q.Setup[group.Model], group.Model
			}
			t += m.times.perMean*change + m.workTime(k, g, int(i))
			mean += change + m.scenarioFactor(k, g, int(i))*m.p.Cost(i, q.Kind).Work

			// Count its lateness by the goal.
			lateness := t + m.residenceTime(g, int(i)) - m.deadline(int(i))
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
			sum += m.p.EndWeight * mean
		}
	}
	return sum
}
