package queue

import (
	"math"

	"inferplan/policy/vqueue"
)

// Checked is what every solve of queues passes.
var Checked = withRuleCheck

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

// scenarioValue returns the objective for an order in scenario k alone. It is infinite if the goal is Completion
// and a group is late. A lateness up to 1e-6 s is rounding.
func (m *Program) scenarioValue(k int, s *vqueue.Assignment) float64 {
	sum := 0.0
	for g := range m.p.Queues {
		q := &m.p.Queues[g]
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
