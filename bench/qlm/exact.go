package main

import (
	"fmt"
	"math"
	"time"

	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/formats/seeded"
	"inferplan/planner/queue"
	"inferplan/policy/vqueue"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/solver/stoch"
	"inferplan/testkit/queuetest"
)

// program is a program to solve.
type program struct {
	groups, queues, models int
	load                   float64
	goal                   queue.Goal
	z                      float64 // chance constraint
	scenarios              int
	small                  bool
}

var programs = []program{
	{6, 2, 3, 0.45, queue.Completion, 0, 0, true},
	{8, 2, 3, 0.45, queue.Completion, 0, 0, true},
	{10, 2, 4, 0.45, queue.Completion, 0, 0, false},
	{6, 2, 3, 0.9, queue.Tardiness, 0, 0, true},
	{8, 2, 3, 0.9, queue.Tardiness, 0, 0, false},
	{10, 2, 4, 0.9, queue.Tardiness, 0, 0, false},
	{12, 3, 4, 0.9, queue.Tardiness, 0, 0, false},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 0, true},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 0, true},
	{10, 2, 4, 0.9, queue.LateRequests, 0, 0, false},
	{12, 3, 4, 0.9, queue.LateRequests, 0, 0, false},
	{16, 4, 4, 0.9, queue.LateRequests, 0, 0, false},
	{8, 2, 3, 0.9, queue.LateRequests, 1.28, 0, true},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 5, true},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 10, false},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 5, false},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 10, false},
}

func (c program) String() string {
	text := fmt.Sprintf("%s %dx%d", c.goal, c.groups, c.queues)
	if c.z > 0 {
		text += fmt.Sprintf(", z %g by tangent", c.z)
	}
	if c.scenarios > 0 {
		text += fmt.Sprintf(", %d scenarios", c.scenarios)
	}
	return text
}

// solved holds the results of a program's solve and of the search.
type solved struct {
	Vars, Rows            int
	Status                milp.Status
	Value, Bound, Seconds float64
	Searched              float64 // the search's order, in the program's objective
	SearchSeconds         float64
}

// variation is the coefficient of variation of a request's work.
const variation = 0.77

func (c program) problem() *vqueue.Problem {
	p := queuetest.Instance(c.groups, c.queues, c.models, c.load, 11)
	switch {
	case c.goal == queue.Completion:
		p.Objective = vqueue.Objective{LatenessRule: vqueue.ByCompletion, LateWeight: 1e5}
	case c.goal == queue.Tardiness:
		p.Objective = vqueue.Objective{LatenessRule: vqueue.ByMeans, TardyWeight: 1}
	case c.z > 0:
		queuetest.Vary(p, variation)
		p.Z = c.z
	}
	return p
}

func (b *bench) solve(c program) (out solved, err error) {
	p := c.problem()
	o := queue.Options{Goal: c.goal}
	if c.z > 0 {
		o.Chance, o.TangentSD = stoch.Chance{Level: stoch.Normal{Sigma: 1}.CDF(c.z)}, 15
	}
	if c.scenarios > 0 {
		cv := make([]float64, c.groups)
		for i := range cv {
			cv[i] = variation / math.Sqrt(p.Groups[i].Size)
		}
		o.Scenarios = stoch.SampleScenarios(seeded.New(1, "scenarios"), c.scenarios, c.queues, 0.08, cv)
	}
	m, err := queue.NewProgram(p, o)
	if err != nil {
		return out, err
	}
	s, began := vqueue.NewAssignment(p), cputime.Used()
	s.InsertGreedily()
	var x vqueue.Search
	x.Run(b.ctx, s, seeded.New(1, "search"), 300_000)
	out.SearchSeconds = (cputime.Used() - began).Seconds()
	e, err := m.Solve(b.ctx, highs.Solver{}, milp.Options{MaxNodes: 100_000, TimeLimit: 300 * time.Second}, nil)
	if err != nil {
		return out, err
	}
	if err := b.ctx.Err(); err != nil {
		return out, err
	}
	out.Vars, out.Rows, out.Status = m.Model.NumVars(), m.Model.NumRows(), e.Solution.Status
	out.Value, out.Bound, out.Seconds = e.Solution.Value, e.Solution.Bound, e.Solution.Stats.CPU.Seconds()
	out.Searched = m.Value(s)
	if c.z > 0 { // both under the exact constraint
		out.Searched = s.Total()
		out.Value = queue.StateFromOrder(p, e.Order).Total()
	}
	return out, nil
}

// sameValue is the relative difference up to which two objectives are the same.
const sameValue = 1e-4

func (b *bench) exact(t *table.Table) error {
	t.Columns = []string{"program", "variables / rows", "status", "CPU s", "value", "bound", "search", "its CPU s", "search: above the optimum, %"}
	for _, c := range programs {
		if b.small && !c.small {
			continue
		}
		r, err := measured(b.keep, fmt.Sprint("exact/", c, "/", c.load), func() (solved, error) { return b.solve(c) })
		if err != nil {
			return err
		}
		above := 100 * (r.Searched - r.Value) / math.Abs(r.Value)
		t.Add(c, fmt.Sprintf("%d / %d", r.Vars, r.Rows), r.Status, fmt.Sprintf("%.1f", r.Seconds), fmt.Sprintf("%.2f", r.Value), fmt.Sprintf("%.2f", r.Bound),
			fmt.Sprintf("%.2f", r.Searched), fmt.Sprintf("%.2f", r.SearchSeconds), fmt.Sprintf("%.3f", above))
		optimal := 0.0
		if r.Status == milp.Optimal {
			optimal = 1
		}
		if c.groups < 16 {
			b.exactly(fmt.Sprintf("%s: solved to the end", c), "QLM, section 7", 1, "of 1", optimal)
		}
		if c.scenarios == 0 && r.Status == milp.Optimal {
			b.atMost(fmt.Sprintf("%s: search above the proven optimum", c), "QLM, section 7", 100*sameValue, "%", above)
		}
	}
	t.Note("Queues hold at most an even share of the groups and three more. The search does not know scenarios: it plans at the means there. With z, values are under the exact chance constraint, the bound is the tangent program's.")
	return nil
}
