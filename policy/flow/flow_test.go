package flow_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/testkit/policytest"
)

func compile(t interface{ Fatal(...any) }, plan *formats.Plan) *policy.Tables {
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	tab, err := policy.Compile(plan)
	if err == nil {
		err = flow.Compile(plan, tab)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// reachedNodes lists the nodes that a request comes to, by the branch taken at each:
// worked out from the graph alone.
func reachedNodes(app *flow.Application, way func(node int32) int32) []int32 {
	var out []int32
	for _, i := range app.Order {
		here := i == 0
		for _, e := range app.Nodes[i].Inputs {
			here = here || slices.Contains(out, e.From) && (e.Outcome < 0 || e.Outcome == way(e.From))
		}
		if here {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

// In whatever order tasks end, a request comes to the nodes that its branches
// lead to, each once and only after all that it reads, and then is over; no slot
// is lost. A request that is dropped at any moment leaves none behind.
func TestEveryReachedNodeIsRevealedOnceAfterItsInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded.New(rapid.Uint64().Draw(t, "seed"), "control")
		tab := compile(t, policytest.DrawFlow(rng, 7, "feas", false))
		app, c := &flow.GraphTablesOf(tab).Apps[0], flow.NewGraphControl(tab)
		var out policy.RevealedTasks
		for req := range int32(4) {
			way := func(node int32) int32 { return (req>>1 ^ node) & 1 }
			var open, seen []int32
			node, ended := map[int32]int32{}, map[int32]bool{}
			dropAt, over := -1, false
			if rng.IntN(3) == 0 {
				dropAt = rng.IntN(len(app.Nodes) + 1)
			}
			take := func() {
				for i := range out.Tasks {
					r := &out.Tasks[i]
					n := r.Service // one node per service here
					for _, in := range out.InputsOf(r) {
						if in >= 0 && !ended[in] {
							t.Fatalf("node %d is revealed before task %d has ended", n, in)
						}
					}
					if slices.Contains(seen, n) || r.NumInputs == 0 {
						t.Fatalf("node %d is revealed twice, or reads nothing", n)
					}
					node[r.Task] = n
					delete(ended, r.Task)
					open, seen = append(open, r.Task), append(seen, n)
				}
				over = over || slices.Contains(out.EndedRequests, req)
				for _, s := range out.UnreadTasks {
					out.ReleaseSlot(s)
				}
				out.Reset()
			}
			c.BeginRequest(req, 0, &out)
			take()
			for len(open) > 0 && dropAt != 0 {
				dropAt--
				i := rng.IntN(len(open))
				task := open[i]
				open = slices.Delete(open, i, i+1)
				ended[task] = true
				c.TaskEnded(task, policy.Outcome{Branch: way(node[task])}, &out)
				take()
			}
			if len(open) > 0 || rng.IntN(2) == 0 {
				c.ForgetRequest(req, &out)
				take()
			}
			slices.Sort(seen)
			if want := reachedNodes(app, way); len(open) == 0 && (!over || !slices.Equal(seen, want)) {
				t.Fatalf("request %d came to %v, over: %v, expected %v", req, seen, over, want)
			}
			if out.SlotsInUse() != 0 {
				t.Fatalf("%d slots are lost", out.SlotsInUse())
			}
		}
	})
}

// A merge behind a branch that was not taken waits for what was taken alone.
func TestMergeOfABranchNotTaken(t *testing.T) {
	ms := []time.Duration{time.Millisecond}
	tab := compile(t, policytest.FlowPlan(time.Second, "feas",
		policytest.FlowStage{Name: "a", Infer: ms, Workers: 1, Branches: []formats.Branch{{Targets: []string{"b"}, Probability: .5}, {Targets: []string{"c"}, Probability: .5}}},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: ms, Workers: 1},
		policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: ms, Workers: 1},
		policytest.FlowStage{Name: "d", After: []string{"b", "c"}, Infer: ms, Workers: 1}))
	c := flow.NewGraphControl(tab)
	var out policy.RevealedTasks
	c.BeginRequest(0, 0, &out)
	c.TaskEnded(0, policy.Outcome{Branch: 1}, &out)
	if n := len(out.Tasks); n != 2 || out.Tasks[1].Service != 2 {
		t.Fatalf("revealed %+v, expected the entry and c", out.Tasks)
	}
	c.TaskEnded(out.Tasks[1].Task, policy.Outcome{}, &out)
	if n := len(out.Tasks); n != 3 || out.Tasks[2].Service != 3 || !slices.Equal(out.InputsOf(&out.Tasks[2]), []int32{out.Tasks[1].Task}) {
		t.Fatalf("revealed %+v reading %v, expected the merge reading c alone", out.Tasks, out.Inputs)
	}
	c.TaskEnded(out.Tasks[2].Task, policy.Outcome{}, &out)
	if !slices.Equal(out.EndedRequests, []int32{0}) || len(out.UnreadTasks) != 3 {
		t.Errorf("over %v, freed %v", out.EndedRequests, out.UnreadTasks)
	}
}

func TestCompileRefuses(t *testing.T) {
	ms := []time.Duration{time.Millisecond}
	good := func() *formats.Plan {
		return policytest.FlowPlan(time.Second, "feas", policytest.FlowStage{Name: "a", Infer: ms, Workers: 1}, policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: ms, Workers: 1})
	}
	for _, c := range []struct {
		change func(p *formats.Plan, f *formats.FlowPlan)
		want   string
	}{
		{func(p *formats.Plan, _ *formats.FlowPlan) { p.Section = &formats.PoolPlan{} }, "kind flow"},
		{func(_ *formats.Plan, f *formats.FlowPlan) { f.Applications[0].Modules[1].Predecessors = []string{"b"} }, "wait for themselves"},
		{func(_ *formats.Plan, f *formats.FlowPlan) { f.Applications[0].Modules[1].Predecessors = nil }, "none for the first module"},
		{func(_ *formats.Plan, f *formats.FlowPlan) { f.Applications[0].Modules[1].Model = "c" }, "of a deployed model"},
		{func(_ *formats.Plan, f *formats.FlowPlan) {
			f.Scaling = &formats.FlowScaling{EveryUS: 1, WindowUS: 1}
		}, "whole seconds"},
	} {
		p := good()
		tab, err := policy.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		c.change(p, formats.FlowOf(p))
		if err := flow.Compile(p, tab); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// Parts of a device's time are those of the plan; what modules in turns cannot be is refused.
func TestTurnsCompile(t *testing.T) {
	for _, c := range []struct {
		change func(p *formats.Plan)
		want   string
	}{
		{func(*formats.Plan) {}, ""},
		{func(p *formats.Plan) { p.Deployment[0].Pipelines[0].Stages[0].GPUs = 0 }, "above 0"},
		{func(p *formats.Plan) {
			p.Deployment[0].Pipelines = append(p.Deployment[0].Pipelines, p.Deployment[0].Pipelines[0])
		}, "a second time"},
		{func(p *formats.Plan) { formats.FlowOf(p).Scaling = &formats.FlowScaling{} }, "devices of its own"},
	} {
		p := policytest.TakeTurns(policytest.FlowPlan(100*time.Millisecond, "feas",
			policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * time.Millisecond}, Workers: 1},
			policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{20 * time.Millisecond}, Workers: 1}), 2)
		p.Deployment[0].Pipelines[0].Stages[0].GPUs, p.Deployment[1].Pipelines[0].Stages[0].GPUs = .5, 1.5
		c.change(p)
		tab, err := policy.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		err = flow.Compile(p, tab)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			continue
		}
		if own := flow.GraphTablesOf(tab); err != nil || !slices.Equal(own.Modules[0].DeviceShares, []float64{.25, .25}) || !slices.Equal(own.Modules[1].DeviceShares, []float64{.75, .75}) {
			t.Errorf("parts %+v (%v), expected .25 and .75 of each device", own, err)
		}
	}
}
