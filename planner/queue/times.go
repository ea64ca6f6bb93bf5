package queue

import (
	"math"

	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// addScenario adds the completion times of one scenario and their cost, times a weight.
func (m *Program) addScenario(s int, weight float64) {
	ends := make([][]milp.Var, len(m.p.Queues))
	horizon := make([]float64, len(m.p.Queues))
	for g := range ends {
		horizon[g] = m.horizon(s, g)
		ends[g] = m.addEnds(s, g, weight)
	}
	if m.o.Goal == Completion {
		m.addCompletion(ends, horizon)
		return
	}
	m.addLateness(s, weight, ends, horizon)
	m.addCapacity(s, horizon)
}

// horizon returns a time by which queue g has ended in any order, in seconds.
func (m *Program) horizon(s, g int) float64 {
	h, change := m.start(g), 0.0
	for i := range m.p.Groups {
		if m.runs(g, i) {
			h += m.work(s, g, i)
			change = max(change, m.p.Queues[g].Setup[m.p.Groups[i].Model])
		}
	}
	return h + float64(m.o.Length)*change*m.linear.perMean
}

// addEnds adds equation 10, with the change of model before the place itself:
//
//	end_j = end_{j-1} + Σ_i work_i x_ij + Σ_model setup_model t_j,model
//
// and returns the ends by place.
func (m *Program) addEnds(s, g int, weight float64) []milp.Var {
	ends := make([]milp.Var, m.o.Length)
	for j := range ends {
		ends[j] = m.Model.AddVar("", m.start(g), milp.Inf, 0)
		row, rhs := []milp.Term{{Var: ends[j], Coef: 1}}, m.start(g)
		if j > 0 {
			row, rhs = append(row, milp.Term{Var: ends[j-1], Coef: -1}), 0
		}
		for i, v := range m.x[g][j] {
			if v >= 0 {
				row = append(row, milp.Term{Var: v, Coef: -m.work(s, g, i)})
			}
		}
		for model, v := range m.t[g][j] {
			if v >= 0 {
				row = append(row, milp.Term{Var: v, Coef: -m.linear.perMean * m.p.Queues[g].Setup[model]})
			}
		}
		m.Model.AddEQ("", rhs, row...)
	}

	// The goal LateRequests also counts the end of a queue, at its mean time.
	if m.o.Goal == Late {
		for j := range ends {
			for i, v := range m.x[g][j] {
				if v >= 0 {
					m.addObj(v, weight*m.p.End*m.factor(s, g, i)*m.p.Cost(int32(i), m.p.Queues[g].Kind).Work)
				}
			}
			for model, v := range m.t[g][j] {
				if v >= 0 {
					m.addObj(v, weight*m.p.End*m.p.Queues[g].Setup[model])
				}
			}
		}
	}
	return ends
}

// addObj adds c to the coefficient of v in the objective.
func (m *Program) addObj(v milp.Var, c float64) { m.Model.SetObj(v, m.Model.Obj(v)+c) }

// addCompletion adds equations 8 and 11 to 13. Empty places cost nothing and have no deadline.
func (m *Program) addCompletion(ends [][]milp.Var, horizon []float64) {
	for g := range ends {
		longest := 0.0
		for i := range m.p.Groups {
			longest = max(longest, m.residence(g, i))
		}

		// bigM is large enough to switch off the row of an empty place.
		big := horizon[g] + longest
		for j := range ends[g] {
			ct := m.Model.AddVar("", 0, milp.Inf, 1)

			// completion ≥ end + residence - bigM (1 - Σ_i x_ij);   completion ≤ deadline
			least := []milp.Term{{Var: ct, Coef: 1}, {Var: ends[g][j], Coef: -1}}
			most := []milp.Term{{Var: ct, Coef: 1}}
			for i, v := range m.x[g][j] {
				if v >= 0 {
					least = append(least, milp.Term{Var: v, Coef: -m.residence(g, i) - big})
					most = append(most, milp.Term{Var: v, Coef: -m.deadline(i)})
				}
			}
			m.Model.AddGE("", -big, least...)
			m.Model.AddLE("", 0, most...)
		}
	}
	sum := 0.0
	for i := range m.p.Groups {
		sum += m.deadline(i)
	}
	m.Model.SetOffset(-sum)
}

// addLateness adds the lateness of each group and, with the goal LateRequests, whether it is late.
func (m *Program) addLateness(s int, weight float64, ends [][]milp.Var, horizon []float64) {
	tardy, late := make([]milp.Var, len(m.p.Groups)), make([]milp.Var, len(m.p.Groups))
	for i := range m.p.Groups {
		group := &m.p.Groups[i]
		perSecond := group.Size
		if m.o.Goal == Late {
			perSecond *= m.p.Tardy
		}
		tardy[i] = m.Model.AddVar("", 0, milp.Inf, weight*perSecond)
		late[i] = -1
		most := 0.0

		// Its lateness follows from the place that it has.
		for g := range ends {
			big := horizon[g] + m.residence(g, i) - m.deadline(i)
			if !m.runs(g, i) || big <= 0 {
				continue
			}
			most = max(most, big)
			for j, end := range ends[g] {
				// tardiness ≥ end + residence - deadline - bigM (1 - x)
				m.Model.AddGE("", m.residence(g, i)-m.deadline(i)-big,
					milp.Term{Var: tardy[i], Coef: 1}, milp.Term{Var: end, Coef: -1}, milp.Term{Var: m.x[g][j][i], Coef: -big})
			}
		}

		// A group is late if its lateness is above 0.
		if m.o.Goal == Late && most > 0 {
			late[i] = m.Model.AddBool("", weight*m.p.Late*group.Size)
			m.Model.AddLE("", 0, milp.Term{Var: tardy[i], Coef: 1}, milp.Term{Var: late[i], Coef: -most})
		}
	}
	m.tardy, m.late = append(m.tardy, tardy), append(m.late, late)
}

// addCapacity adds rows that hold for every order but not for the program's relaxation: those groups of a
// queue that are on time and due by some time fit before it, with one change for every model among them
// that is not loaded.
func (m *Program) addCapacity(s int, horizon []float64) {
	if m.o.Goal != Late {
		return
	}
	late := m.late[s]
	intime := make([][]milp.Term, len(m.p.Groups))

	// onTime says, by group, whether the group is in this queue and on time.
	for g := range m.p.Queues {
		y := make([]milp.Var, len(m.p.Groups))
		for i := range m.p.Groups {
			if y[i] = -1; !m.runs(g, i) {
				continue
			}
			y[i] = m.Model.AddVar("", 0, 1, 0)
			row := []milp.Term{{Var: y[i], Coef: 1}}
			for j := range m.x[g] {
				row = append(row, milp.Term{Var: m.x[g][j][i], Coef: -1})
			}
			m.Model.AddLE("", 0, row...)
			intime[i] = append(intime[i], milp.Term{Var: y[i], Coef: 1})
		}
		m.addDue(s, g, y, horizon[g])
	}

	// Every group is on time in some queue, or late.
	for i, row := range intime {
		if late[i] >= 0 {
			row = append(row, milp.Term{Var: late[i], Coef: 1})
		}
		m.Model.AddEQ("", 1, row...)
	}
}

// addDueRows adds the capacity rows of queue g, one for the due time of every group.
func (m *Program) addDue(s, g int, y []milp.Var, horizon float64) {
	for k := range m.p.Groups {
		if y[k] < 0 {
			continue
		}

		// Rows only matter between the start of the queue and its horizon.
		due := m.deadline(k) - m.residence(g, k)
		if due >= horizon {
			continue
		}
		if due < m.start(g) {
			m.Model.SetBounds(y[k], 0, 0)
			continue
		}

		// Sum the work of the groups that are due by then, and their changes of model.
		var row []milp.Term
		changes := make([]milp.Var, m.p.Models)
		for model := range changes {
			changes[model] = -1
		}
		for i, v := range y {
			if v < 0 || m.deadline(i)-m.residence(g, i) > due {
				continue
			}
			row = append(row, milp.Term{Var: v, Coef: m.work(s, g, i)})
			model := m.p.Groups[i].Model
			cost := m.p.Queues[g].Setup[model] * m.linear.perMean
			if model == m.p.Queues[g].Model || cost == 0 {
				continue
			}
			if changes[model] < 0 {
				changes[model] = m.Model.AddVar("", 0, 1, 0)
				row = append(row, milp.Term{Var: changes[model], Coef: cost})
			}
			m.Model.AddLE("", 0, milp.Term{Var: v, Coef: 1}, milp.Term{Var: changes[model], Coef: -1})
		}
		m.Model.AddLE("", due-m.start(g), row...)
	}
}

// Value returns the objective of the program for a state of its problem.
func (m *Program) Value(s *vqueue.State) float64 {
	scenarios := 1
	if m.o.Scenarios != nil {
		scenarios = len(m.o.Scenarios.Queue)
	}
	sum := 0.0
	for k := range scenarios {
		sum += m.valueIn(k, s) / float64(scenarios)
	}
	return sum
}

// scenarioValue returns the objective of scenario k alone.
func (m *Program) valueIn(k int, s *vqueue.State) float64 {
	sum := 0.0
	for g := range m.p.Queues {
		q := &m.p.Queues[g]
		t, mean, model := m.start(g), 0.0, q.Model
		for _, i := range s.Order(int32(g), nil) {
			// Add the change of model and the work of the group.
			group := &m.p.Groups[i]
			change := 0.0
			if group.Model != model {
				change, model = q.Setup[group.Model], group.Model
			}
			t += m.linear.perMean*change + m.work(k, g, int(i))
			mean += change + m.factor(k, g, int(i))*m.p.Cost(i, q.Kind).Work

			// Count its lateness by the goal.
			late := t + m.residence(g, int(i)) - m.deadline(int(i))
			switch {
			case m.o.Goal == Completion && late > 1e-6:
				return math.Inf(1)
			case m.o.Goal == Completion:
				sum += late
			case late <= 1e-6:
			case m.o.Goal == Tardiness:
				sum += group.Size * late
			default:
				sum += group.Size * (m.p.Late + m.p.Tardy*late)
			}
		}
		if m.o.Goal == Late {
			sum += m.p.End * mean
		}
	}
	return sum
}
