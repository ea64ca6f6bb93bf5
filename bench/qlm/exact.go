package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"inferplan/bench/instrument"
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
}

// programs to solve; the first small of them are small.
var programs = []program{
	{6, 2, 3, 0.45, queue.Completion, 0, 0},
	{8, 2, 3, 0.45, queue.Completion, 0, 0},
	{6, 2, 3, 0.9, queue.Tardiness, 0, 0},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 0},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 0},
	{8, 2, 3, 0.9, queue.LateRequests, 1.28, 0},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 5},
	{10, 2, 4, 0.45, queue.Completion, 0, 0},
	{8, 2, 3, 0.9, queue.Tardiness, 0, 0},
	{10, 2, 4, 0.9, queue.Tardiness, 0, 0},
	{12, 3, 4, 0.9, queue.Tardiness, 0, 0},
	{10, 2, 4, 0.9, queue.LateRequests, 0, 0},
	{12, 3, 4, 0.9, queue.LateRequests, 0, 0},
	{16, 4, 4, 0.9, queue.LateRequests, 0, 0},
	{6, 2, 3, 0.9, queue.LateRequests, 0, 10},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 5},
	{8, 2, 3, 0.9, queue.LateRequests, 0, 10},
}

const smallPrograms = 7

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

func (c program) solve(ctx context.Context) (out solved, err error) {
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
	x.Run(ctx, s, seeded.New(1, "search"), 300_000)
	out.SearchSeconds = (cputime.Used() - began).Seconds()
	e, err := m.Solve(ctx, highs.Solver{}, milp.Options{MaxNodes: 100_000, TimeLimit: 300 * time.Second}, nil)
	if err != nil {
		return out, err
	}
	if err := ctx.Err(); err != nil {
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

func (b *bench) exact(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"program", "variables / rows", "status", "CPU s", "value", "bound", "search", "its CPU s", "search: above the optimum, %"}
	for _, c := range first(b, smallPrograms, programs) {
		x, err := instrument.Measured(r, fmt.Sprint("exact/", c, "/", c.load), func() (solved, error) { return c.solve(r.Ctx) })
		if err != nil {
			return err
		}
		above := 100 * (x.Searched - x.Value) / math.Abs(x.Value)
		t.Add(c, fmt.Sprintf("%d / %d", x.Vars, x.Rows), x.Status, fmt.Sprintf("%.1f", x.Seconds), fmt.Sprintf("%.2f", x.Value), fmt.Sprintf("%.2f", x.Bound),
			fmt.Sprintf("%.2f", x.Searched), fmt.Sprintf("%.2f", x.SearchSeconds), fmt.Sprintf("%.3f", above))
		optimal := 0.0
		if x.Status == milp.Optimal {
			optimal = 1
		}
		if c.groups < 16 {
			r.Exactly(fmt.Sprintf("%s: solved to the end", c), "QLM, section 7", 1, "of 1", optimal)
		}
		if c.scenarios == 0 && x.Status == milp.Optimal {
			r.AtMost(fmt.Sprintf("%s: search above the proven optimum", c), "QLM, section 7", 100*sameValue, "%", above)
		}
	}
	t.Note("Queues hold at most an even share of the groups and three more. The search does not know scenarios: it plans at the means there. With z, values are under the exact chance constraint, the bound is the tangent program's.")
	return nil
}
