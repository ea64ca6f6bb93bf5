package queue_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"

	"inferplan/formats/seeded"
	"inferplan/planner/queue"
	"inferplan/policy/vqueue"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/solver/stoch"
	"inferplan/testkit/queuetest"
)

// searchObjective is what the search minimises for the same goal.
func searchObjective(p *vqueue.Problem, goal queue.Goal) *vqueue.Problem {
	switch goal {
	case queue.Completion:
		p.Objective = vqueue.Objective{LatenessRule: vqueue.ByCompletion, LateWeight: 1e5}
	case queue.Tardiness:
		p.Objective = vqueue.Objective{LatenessRule: vqueue.ByMeans, TardyWeight: 1}
	}
	return p
}

// TestSearchEqualsProvenOptima solves programs to the end and compares.
func TestSearchEqualsProvenOptima(t *testing.T) {
	for _, c := range []struct {
		groups, queues, models int
		load                   float64
		goal                   queue.Goal
		long                   bool
		want                   float64 // known value; 0: none
	}{
		{6, 2, 3, 0.9, queue.LateRequests, false, 468.97},
		{8, 2, 3, 0.9, queue.LateRequests, false, 399.76},
		{10, 2, 4, 0.9, queue.LateRequests, true, 226.08},
		{12, 3, 4, 0.9, queue.LateRequests, true, 221.70},
		{6, 2, 3, 0.45, queue.Completion, false, 0},
		{8, 2, 3, 0.45, queue.Completion, true, 0},
		{10, 2, 4, 0.45, queue.Completion, true, 0},
		{6, 2, 3, 0.9, queue.Tardiness, false, 0},
		{8, 2, 3, 0.9, queue.Tardiness, true, 0},
	} {
		t.Run(fmt.Sprintf("%s %dx%d", c.goal, c.groups, c.queues), func(t *testing.T) {
			if c.long && os.Getenv("INFERPLAN_LONG") == "" {
				t.Skip("takes seconds: INFERPLAN_LONG=1 runs it")
			}
			p := searchObjective(queuetest.Instance(c.groups, c.queues, c.models, c.load, 11), c.goal)
			s := queuetest.Searched(p, 100_000)
			program, err := queue.NewProgram(p, queue.Options{Goal: c.goal})
			if err != nil {
				t.Fatal(err)
			}
			exact, err := program.Solve(context.Background(), highs.Solver{}, milp.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			sol := exact.Solution
			if sol.Status != milp.Optimal {
				t.Fatalf("status %s", sol.Status)
			}
			if math.Abs(s.Total()-sol.Value) > 1e-4*math.Abs(sol.Value) {
				t.Errorf("the search found %.4f, the optimum is %.4f", s.Total(), sol.Value)
			}
			if c.want > 0 && math.Abs(sol.Value-c.want) > 0.01 {
				t.Errorf("the optimum is %.3f, expected %.2f", sol.Value, c.want)
			}
			// The order gives the same value by the search's arithmetic, and by ours.
			order := queue.StateFromOrder(p, exact.Order)
			if math.Abs(order.Total()-sol.Value) > 1e-4*math.Abs(sol.Value) || math.Abs(program.Value(order)-sol.Value) > 1e-4*math.Abs(sol.Value) {
				t.Errorf("the order of the optimum %.4f costs %.4f in the search and %.4f in the program", sol.Value, order.Total(), program.Value(order))
			}
		})
	}
}

// withVaryingWork gives every group work that varies like the sum of its requests.
func withVaryingWork(p *vqueue.Problem) *vqueue.Problem {
	for i := range p.Groups {
		for k := range p.Kinds {
			if c := p.Cost(int32(i), int32(k)); !math.IsInf(c.Work, 1) {
				c.Variance = 0.77 * 0.77 * c.Work * c.Work / p.Groups[i].Size
			}
		}
	}
	return p
}

// TestChanceRows: the plan of the tangent keeps the exact constraint, and costs
// little more than the search's plan under the exact one.
func TestChanceRows(t *testing.T) {
	p := withVaryingWork(queuetest.Instance(8, 2, 3, 0.9, 11))
	chance := stoch.Chance{Level: stoch.Normal{Sigma: 1}.CDF(1.28)}
	program, err := queue.NewProgram(p, queue.Options{Goal: queue.LateRequests, Chance: chance, TangentSD: 15})
	if err != nil {
		t.Fatal(err)
	}
	exact, err := program.Solve(context.Background(), highs.Solver{}, milp.Options{}, nil)
	if err != nil || exact.Solution.Status != milp.Optimal {
		t.Fatal(err, exact.Solution.Status)
	}
	p.Z = 1.28
	tangent, best := queue.StateFromOrder(p, exact.Order).Total(), queuetest.Searched(p, 100_000).Total()
	t.Logf("tangent program %.2f, its order under the exact constraint %.2f, search %.2f", exact.Solution.Value, tangent, best)
	if tangent > exact.Solution.Value+1e-6 {
		t.Errorf("the order costs %.3f under the exact constraint, more than the %.3f that the rows promise", tangent, exact.Solution.Value)
	}
	if best > tangent+1e-6 || exact.Solution.Value > 1.01*best {
		t.Errorf("the search found %.3f under the exact constraint, the rows %.3f", best, exact.Solution.Value)
	}
}

// TestScenarioProgramOrderIsOptimal: the sample-average program's order is the best for its scenarios.
func TestScenarioProgramOrderIsOptimal(t *testing.T) {
	for _, c := range []struct {
		groups, scenarios int
		long              bool
	}{{6, 5, false}, {6, 10, true}, {8, 5, true}, {8, 10, true}} {
		if c.long && os.Getenv("INFERPLAN_LONG") == "" {
			continue
		}
		p := queuetest.Instance(c.groups, 2, 3, 0.9, 11)
		cv := make([]float64, c.groups)
		for i := range cv {
			cv[i] = 0.77 / math.Sqrt(p.Groups[i].Size)
		}
		program, err := queue.NewProgram(p, queue.Options{Goal: queue.LateRequests, Scenarios: stoch.SampleScenarios(seeded.New(1, "scenarios"), c.scenarios, 2, 0.08, cv)})
		if err != nil {
			t.Fatal(err)
		}
		means := queuetest.Searched(p, 100_000)
		exact, err := program.Solve(context.Background(), highs.Solver{}, milp.Options{}, means)
		if err != nil || exact.Solution.Status != milp.Optimal {
			t.Fatal(err, exact.Solution.Status)
		}
		value, planned := exact.Solution.Value, program.Value(means)
		t.Logf("%dx2, %d scenarios: optimum %.2f, the order for the means %.2f, %d variables, %d rows, CPU %v",
			c.groups, c.scenarios, value, planned, program.Model.NumVars(), program.Model.NumRows(), exact.Solution.Stats.CPU)
		if got := program.Value(queue.StateFromOrder(p, exact.Order)); math.Abs(got-value) > 1e-4*value {
			t.Errorf("the optimum %.4f, its order costs %.4f", value, got)
		}
		if c.groups == 6 {
			best, s := math.Inf(1), vqueue.NewAssignment(p)
			queuetest.Orders(p, s, 0, func() { best = min(best, program.Value(s)) })
			if math.Abs(best-value) > 1e-4*best {
				t.Errorf("the optimum is %.4f, the best of all orders %.4f", value, best)
			}
		}
		if planned < value-1e-4*value {
			t.Errorf("the order for the means costs %.4f, less than the optimum %.4f", planned, value)
		}
	}
}

func TestProgramRefuses(t *testing.T) {
	p := queuetest.Instance(6, 2, 3, 0.9, 11)
	for name, o := range map[string]queue.Options{
		"too short":             {QueueLength: 2},
		"scenarios, completion": {Goal: queue.Completion, Scenarios: &stoch.Scenarios{}},
		"level":                 {Goal: queue.LateRequests, Chance: stoch.Chance{Level: 0.3}, TangentSD: 1},
	} {
		if _, err := queue.NewProgram(p, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	p.Groups[2].Deadline[0] = math.NaN()
	if _, err := queue.NewProgram(p, queue.Options{}); err == nil {
		t.Error("a deadline that is not a number: no error")
	}
}
