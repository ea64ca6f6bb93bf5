package queue

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/planner/lists"
	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
	"inferplan/solver/stoch"
)

// Goal is the objective of a program.
type Goal uint8

const (
	// Completion is equation 13 under equation 12: the sum of completion times less deadlines. No group may
	// be late.
	Completion Goal = iota
	// Tardiness is the sum over the groups of size times lateness.
	Tardiness
	// LateRequests is the problem's objective: the number of late requests, with the problem's weights of
	// lateness and of the ends of queues.
	LateRequests
)

// String returns the name of the goal.
func (g Goal) String() string { return [...]string{"completion", "tardiness", "late"}[g] }

// Options choose a program.
type Options struct {
	Goal Goal
	// QueueLength limits the groups in one queue. If it is 0, it is an even share plus three.
	QueueLength int
	// Chance, if its level is above 0, replaces all times by those that the sums exceed with probability 1
	// - level. The rows are tangents, which equal the exact form where the standard deviation is TangentSD
	// seconds.
	Chance    stoch.Chance
	TangentSD float64
	// Scenarios make a sample-average program: one order for all scenarios. They need the goal LateRequests
	// or Tardiness.
	Scenarios *stoch.Scenarios
}

// Program is a mixed-integer program for the order of groups, with the repairs that the package's text
// describes.
type Program struct {
	Model     *milp.Model
	p         *vqueue.Problem
	o         Options
	x         [][][]milp.Var // group i is at place j of queue g, by queue, place and group. If it cannot run there, it is -1.
	t         [][][]milp.Var // queue g changes to the model at place j, by queue, place and model. If it never does, it is -1.
	tardiness [][]milp.Var   // lateness in seconds, by scenario and group
	isLate    [][]milp.Var   // by scenario and group. If a group is never late, it is -1.
	times     linearTimes
}

// linearTimes turns means and variances into times of the program: constant + perMean·mean +
// perVariance·variance. With a chance constraint these have a margin for the variance. Without one, perMean is 1 and the others 0.
type linearTimes struct{ perMean, perVariance, constant float64 }

// NewProgram builds the mixed-integer program that puts request groups (requests scheduled as one) into an order in queues, one for each
// instance, with the goal of the options. It returns an error for a problem without groups or queues, for queues that are too short for
// all groups, and for options that exclude each other.
func NewProgram(p *vqueue.Problem, o Options) (*Program, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if len(p.Groups) == 0 || len(p.Queues) == 0 {
		return nil, fmt.Errorf("a program for %d groups and %d queues: expected some of each", len(p.Groups), len(p.Queues))
	}
	if o.Scenarios != nil && (o.Goal == Completion || o.Chance.Level > 0) {
		return nil, errors.New("a program with scenarios counts lateness, and has no chance constraint")
	}

	// Choose the length of queues.
	if o.QueueLength == 0 {
		o.QueueLength = (len(p.Groups)+len(p.Queues)-1)/len(p.Queues) + 3 // three more than if all queues were equally long
	}
	o.QueueLength = min(o.QueueLength, len(p.Groups))
	if o.QueueLength*len(p.Queues) < len(p.Groups) {
		return nil, fmt.Errorf("length %d: %d groups do not fit in %d queues", o.QueueLength, len(p.Groups), len(p.Queues))
	}
	m := &Program{Model: milp.New("order of groups"), p: p, o: o, times: linearTimes{perMean: 1}}

	// With a chance constraint, times are those of its tangent: perMean·mean + perVariance·variance + constant.
	if o.Chance.Level > 0 {
		var err error
		if m.times.perMean, m.times.perVariance, m.times.constant, err = o.Chance.Tangent(o.TangentSD * o.TangentSD); err != nil {
			return nil, err
		}
	}

	// Places and changes are the same in all scenarios. Times are not.
	if err := m.addPlaces(); err != nil {
		return nil, err
	}
	m.addChanges()
	if o.Scenarios == nil {
		m.addScenario(0, 1)
	} else {
		for s := range o.Scenarios.QueueFactors {
			m.addScenario(s, 1/float64(len(o.Scenarios.QueueFactors)))
		}
	}
	return m, nil
}

// canRun returns whether group i can run in queue g.
func (m *Program) canRun(g, i int) bool {
	q := &m.p.Queues[g]
	return !math.IsInf(m.p.Cost(int32(i), q.Kind).Work+q.Setup[m.p.Groups[i].Model], 1)
}

// addPlaces adds the binary variables x[g][j][i], which are 1 if group i is at place j of queue g (-1 stands for a group that cannot run
// there), and equation 6 of QLM: every group has one place, every place has at most one group, and no place after an empty one is taken.
// A group that can run in no queue is an error.
func (m *Program) addPlaces() error {
	m.x = make([][][]milp.Var, len(m.p.Queues))
	groupPlaces := make([][]milp.Term, len(m.p.Groups))
	for g := range m.x {
		m.x[g] = make([][]milp.Var, m.o.QueueLength)
		var previousPlace []milp.Term
		for j := range m.x[g] {
			m.x[g][j] = make([]milp.Var, len(m.p.Groups))

			// Variables of the groups that can be at this place.
			var place []milp.Term
			for i := range m.p.Groups {
				m.x[g][j][i] = -1
				if m.canRun(g, i) {
					v := m.Model.AddBool(fmt.Sprintf("x[%d,%d,%d]", g, j, i), 0)
					m.x[g][j][i] = v
					place = append(place, milp.Term{Var: v, Coef: 1})
					groupPlaces[i] = append(groupPlaces[i], milp.Term{Var: v, Coef: 1})
				}
			}

			// The place has at most one group, and only if the place before has one.
			if j == 0 {
				m.Model.AddLE("", 1, place...)
			} else {
				m.Model.AddLE("", 0, append(negate(previousPlace), place...)...)
			}
			previousPlace = place
		}
	}

	// Every group has one place.
	for i, terms := range groupPlaces {
		if len(terms) == 0 {
			return fmt.Errorf("groups[%d]: can run in no queue", i)
		}
		m.Model.AddEQ("", 1, terms...)
	}
	return nil
}

// negate returns the terms of a linear row with their coefficients negated, which brings them to the other side of the row.
func negate(terms []milp.Term) []milp.Term {
	return lists.Filled(len(terms), func(i int) milp.Term { return milp.Term{Var: terms[i].Var, Coef: -terms[i].Coef} })
}

// addChanges adds variables t[g][j][model], for equations 7 and 9 of QLM, which are at least 1 if queue g has to load the model at place
// j: the group at the place runs it, and the group before (or, at the start, the instance) does not have it loaded. Where that cannot be,
// the entry is -1.
func (m *Program) addChanges() {
	m.t = make([][][]milp.Var, len(m.p.Queues))
	for g := range m.t {
		m.t[g] = make([][]milp.Var, m.o.QueueLength)
		for j := range m.t[g] {
			m.t[g][j] = make([]milp.Var, m.p.Models)
			for model := range m.t[g][j] {
				m.t[g][j][model] = -1
				current := m.modelTerms(g, j, model)
				if len(current) == 0 || j == 0 && int(m.p.Queues[g].Model) == model {
					continue
				}

				// t ≥ Σ_i x of the model's groups at this place - the same sum at the place before
				v := m.Model.AddVar("", 0, 1, 0)
				m.t[g][j][model] = v
				row := append(current, milp.Term{Var: v, Coef: -1})
				if j > 0 {
					row = append(row, negate(m.modelTerms(g, j-1, model))...)
				}
				m.Model.AddLE("", 0, row...)
			}
		}
	}
}

// modelTerms returns the terms whose sum is 1 if place j of queue g has a group of the model, and else 0.
func (m *Program) modelTerms(g, j, model int) []milp.Term {
	var terms []milp.Term
	for i := range m.p.Groups {
		if v := m.x[g][j][i]; v >= 0 && int(m.p.Groups[i].Model) == model {
			terms = append(terms, milp.Term{Var: v, Coef: 1})
		}
	}
	return terms
}

// scenarioFactor returns the factor by which scenario s multiplies the mean work of group i in queue g: a scenario is one random sample
// of how long work takes, with a part for the queue and one for the group. Without scenarios it returns 1.
func (m *Program) scenarioFactor(s, g, i int) float64 {
	if m.o.Scenarios == nil {
		return 1
	}
	return m.o.Scenarios.QueueFactors[s][g] * m.o.Scenarios.GroupFactors[s][i]
}

// workTime returns the work of group i in queue g in scenario s (one random sample of the work), in seconds: the time of the instance
// before the next group can start. With a chance constraint it includes the margin for its variance.
func (m *Program) workTime(s, g, i int) float64 {
	cost := m.p.Cost(int32(i), m.p.Queues[g].Kind)
	return m.scenarioFactor(s, g, i) * (m.times.perMean*cost.Work + m.times.perVariance*cost.Variance)
}

// residenceTime returns how long the answers of group i still take in queue g after its work, when the next group has started, in
// seconds. With a chance constraint it includes the margin for its variance.
func (m *Program) residenceTime(g, i int) float64 {
	cost := m.p.Cost(int32(i), m.p.Queues[g].Kind)
	return m.times.perMean*cost.Residence + m.times.perVariance*cost.ResidenceVar
}

// startTime returns when queue g starts, in seconds.
func (m *Program) startTime(g int) float64 {
	q := &m.p.Queues[g]
	return m.times.constant + m.times.perMean*q.Start
}

// deadline returns the time by which all requests of group i are due, in seconds.
func (m *Program) deadline(i int) float64 { return m.p.Groups[i].Deadline[vqueue.Quantiles-1] }

// OrderResult is the result of solving a program.
type OrderResult struct {
	Order    [][]int32 // groups by queue, in their order
	Solution *milp.Solution
}

// Solve solves the program for the order of request groups in queues (one queue for each instance), and returns the order that it found,
// nil if none. The solver starts from start, an order of the same problem, unless that is nil.
func (m *Program) Solve(ctx context.Context, solver milp.Solver, o milp.Options, start *vqueue.Assignment) (*OrderResult, error) {
	if start != nil {
		o.Start = m.startValues(start)
	}
	sol, err := solver.Solve(ctx, m.Model, o)
	if err != nil {
		return nil, fmt.Errorf("solving the program for the order of groups: %w", err)
	}
	result := &OrderResult{Solution: sol}

	// Read the order from x.
	if sol.Feasible() {
		result.Order = make([][]int32, len(m.x))
		for g := range m.x {
			for j := range m.x[g] {
				// At most one group i is at place j of queue g. v is negative if the group cannot be there.
				for i, v := range m.x[g][j] {
					if v >= 0 && sol.Int(v) == 1 {
						result.Order[g] = append(result.Order[g], int32(i))
					}
				}
			}
		}
	}
	return result, nil
}

// startValues returns start values for the solver, by variable: for x, which place the groups, 1 or 0 as an assignment of groups to
// queues has them, and NaN for all others, which the solver completes. If a queue of the assignment is longer than the program allows, it
// returns nil, and the solver starts without.
func (m *Program) startValues(assignment *vqueue.Assignment) []float64 {
	start := lists.Filled(m.Model.NumVars(), func(int) float64 { return math.NaN() })
	for g := range m.x {
		order := assignment.AppendOrder(int32(g), nil)
		if len(order) > len(m.x[g]) {
			return nil
		}
		for j := range m.x[g] {
			for i, v := range m.x[g][j] {
				if v >= 0 {
					start[v] = 0
					if j < len(order) && int(order[j]) == i {
						start[v] = 1
					}
				}
			}
		}
	}
	return start
}

// StateFromOrder returns the assignment of a problem's groups to its queues (one for each instance) that has them in a given order: order
// has the indexes of the groups, by queue.
func StateFromOrder(p *vqueue.Problem, order [][]int32) *vqueue.Assignment {
	state := vqueue.NewAssignment(p)
	for queue := range order {
		for place, group := range order[queue] {
			state.Insert(group, int32(queue), place)
		}
	}
	return state
}
